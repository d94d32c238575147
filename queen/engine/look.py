"""What a look for something that may not be there yet brought."""

from abc import ABC, abstractmethod
from typing import Any


class Look(ABC):
    """What the handler of a kind that may wait found for a request, or when to look again.

    Attributes:
        ready_in: seconds until something becomes ready by itself; ``inf`` for never, 0 or less: it is, but somebody
            else holds it; ``-inf``: the call had no room for it, and another will.
        more: whether there may be more than it has taken.
        behind: whether it saw what a push in the same transaction has stored.
    """

    __slots__ = ()

    ready_in: float
    more: bool
    behind: bool

    @property
    @abstractmethod
    def found(self) -> bool:
        """Whether the sender is to be answered now."""

    @property
    @abstractmethod
    def result(self) -> Any:  # noqa: ANN401 - any operation's
        """The answer."""
