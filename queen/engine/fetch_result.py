"""The result of an attempt to get messages that may not be there yet."""

from abc import ABC, abstractmethod
from typing import Any


class FetchResult(ABC):
    """What the handler found for a request that may wait, or when to try again.

    Attributes:
        ready_in: seconds until something becomes ready by itself; ``inf``: never; 0 or less: something is ready, but
            another transaction has locked it; ``-inf``: the call reached one of its limits, and the next may find it.
        more: whether there may be more messages than the request has taken.
        prefetched: whether a worker may be about to release messages that it has prefetched.
    """

    __slots__ = ()

    ready_in: float
    more: bool
    prefetched: bool

    @property
    @abstractmethod
    def found(self) -> bool:
        """Whether the sender is to be answered now."""

    @property
    @abstractmethod
    def result(self) -> Any:  # noqa: ANN401 - any operation's
        """The answer."""
