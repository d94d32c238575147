"""What the spool looks like from outside, for health, metrics and people."""

from msgspec import Struct


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

    @property
    def full(self) -> bool:
        """Whether a push would be refused for lack of room."""
        return self.bytes >= self.bytes_max
