"""What a look for something that may not be there yet brought."""

from abc import ABC, abstractmethod
from typing import Any


class Look(ABC):
    """What the handler of a kind that may wait found for a request, or when to look again.

    Attributes:
        ready_in: seconds until something becomes ready by itself; ``inf`` for never, 0 or less: it is, but somebody
            else holds it.
    """

    __slots__ = ()

    ready_in: float

    @property
    @abstractmethod
    def found(self) -> bool:
        """Whether the sender is to be answered now."""

    @property
    @abstractmethod
    def result(self) -> Any:  # noqa: ANN401 - any operation's
        """The answer."""
