"""Which of several databases are available, in answers."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

CONNECTED, DISCONNECTED = "connected", "disconnected"


def state_of(up: bool) -> str:
    """Whether a database is available, in a word."""
    return CONNECTED if up else DISCONNECTED


def states_of(databases: Sequence[tuple[str, bool]]) -> dict[str, str] | UnsetType:
    """Each database by its name; unset if there is one only, which has none."""
    return {name: state_of(up) for name, up in databases} if len(databases) > 1 else UNSET
