"""What the spool looks like from outside, for health, metrics and people."""

from collections.abc import Sequence

from msgspec import Struct


class SetAside(Struct, frozen=True):
    """A file that was set aside, since when (seconds since 1970; 0: not known), and why."""

    file: str
    since: float
    reason: str


class SpoolState(Struct, frozen=True):
    """The spool of an instance.

    Attributes:
        spooling: whether pushes go to the spool.
        requests, messages, bytes: what waits to be replayed; ``bytes`` of files.
        oldest_age_s: how long the oldest of it has waited; 0 when nothing waits.
        replay_rate: messages replayed a second, lately; 0 when nothing is replayed.
        replayed: messages replayed since the folder was last recovered.
        failed: files that were set aside.
        bytes_max: how much may wait.
        failed_age_s: how long the oldest of them has been; 0 when there is none, or it cannot be read.
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
    def full(self) -> bool:
        """Whether a push would be refused for lack of room."""
        return self.bytes >= self.bytes_max
