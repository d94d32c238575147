"""The state of the spool, for health, metrics and people."""

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct, structs


class SetAside(Struct, frozen=True):
    """A file that was set aside: when (seconds since 1970; 0: unknown), and why."""

    file: str
    since: float
    reason: str


class SpoolState(Struct, frozen=True):
    """The spool of an instance.

    Attributes:
        spooling: whether pushes go to the spool.
        requests, messages, bytes: not yet replayed; ``bytes`` of files.
        oldest_age_s: age of the oldest message; 0 if there is none.
        replay_rate: recent replay rate in messages per second; 0 if nothing is being replayed.
        replayed: messages replayed since the folder was last recovered.
        failed: files that were set aside.
        bytes_max: limit in bytes.
        failed_age_s: age of the oldest of them; 0 if there is none, or it cannot be read.
        held_partitions: partitions that are held back: a request to them could not be stored yet.
        held_age_s: how long the longest of them has been; 0 when none is.
        held_codes: why they are, without names.
    """

    spooling: bool
    requests: int
    messages: int
    bytes: int
    oldest_age_s: float
    replay_rate: float
    replayed: int
    failed: int
    bytes_max: int
    held_partitions: int = 0
    held_age_s: float = 0.0
    held_codes: Sequence[str] = ()
    failed_age_s: float = 0.0

    @property
    def takes_pushes(self) -> bool:
        """Whether pushes go to the spool, all or those to some partitions."""
        return self.spooling or self.held_partitions > 0

    @property
    def full(self) -> bool:
        """Whether pushes are refused because the spool is full."""
        return self.bytes >= self.bytes_max


_SUMS = ("requests", "messages", "bytes", "replay_rate", "replayed", "failed", "bytes_max", "held_partitions")
_LARGEST = ("oldest_age_s", "held_age_s", "failed_age_s")


def together(states: Sequence[SpoolState]) -> SpoolState:
    """The state of the spools of several databases."""
    if len(states) == 1:
        return states[0]
    sums = {name: sum([getattr(state, name) for state in states]) for name in _SUMS}
    largest = {name: max([getattr(state, name) for state in states]) for name in _LARGEST}
    codes = sorted(set(chain.from_iterable([state.held_codes for state in states])))
    spooling = any(state.spooling for state in states)
    return structs.replace(states[0], spooling=spooling, held_codes=codes, **sums, **largest)
