"""Where partitions live, if an installation has several databases (shards): a pure function of names.

A partition is made on the shard that the current list of shards names, by rendezvous hashing (Thaler, Ravishankar 1998),
and stays there when the list changes. So an existing partition lives on the shard that one of the lists named at its
time: those are its candidates. ``sql/internal/026_shards.sql`` computes the same, and a shard refuses to make a
partition that belongs elsewhere.
"""

from collections.abc import Sequence
from hashlib import md5

from msgspec import Struct

from queen.core.errors import SettingError

#: Numbers of partitions, queues, dead letters, … of a shard begin with its slot: the first 8 of 48 bits.
SLOT_BITS = 40
SLOTS_MAX = 1 << 8
_SEPARATOR = "\x1f"


def slot_of(number: int) -> int:
    """The slot of the shard that gave a number to a partition, a queue, a dead letter or a stream."""
    return number >> SLOT_BITS


class Shard(Struct, frozen=True):
    """One database of several.

    Attributes:
        slot: its number in ids, which is never used again.
        name: from DATABASE_URLS.
        added_in: the version of the list that began to place partitions on it.
        drained_in: the version that ended that; ``None``: it still does.
    """

    slot: int
    name: str
    added_in: int
    drained_in: int | None = None

    def takes(self, version: int) -> bool:
        """Whether a version of the list places partitions on it."""
        return self.added_in <= version and (self.drained_in is None or self.drained_in > version)


class ShardList(Struct, frozen=True):
    """The shards of an installation, as each of them stores it.

    Attributes:
        shards: by slot.
        version: counts changes, from 1.
    """

    shards: Sequence[Shard]
    version: int

    def names(self, version: int) -> list[str]:
        """The shards on which a version places partitions."""
        return [shard.name for shard in self.shards if shard.takes(version)]

    def slot(self, name: str) -> int | None:
        """The slot of a name."""
        return next((shard.slot for shard in self.shards if shard.name == name), None)

    def home(self, queue: str, partition: str) -> str:
        """The shard on which a new partition is made."""
        return self._at(queue, partition, self.version)

    def candidates(self, queue: str, partition: str) -> list[str]:
        """The shards on which a partition may live, the one for a new partition first."""
        versions = range(self.version, 0, -1)
        return list(dict.fromkeys(self._at(queue, partition, version) for version in versions))

    def _at(self, queue: str, partition: str, version: int) -> str:
        pinned = partition.rpartition("@")[2] if "@" in partition else ""
        if self.slot(pinned) is not None:
            return pinned
        return max(self.names(version), key=lambda name: _score(name, queue, partition))


def _score(name: str, queue: str, partition: str) -> str:
    text = _SEPARATOR.join((name, queue, partition))
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def first_list(names: Sequence[str], populated: Sequence[str]) -> ShardList:
    """The list of an installation that begins with these shards.

    A database that already has queues becomes the first shard, and its partitions stay there.

    Raises:
        SettingError: several have queues: their partitions may have equal names, and their ids overlap.
    """
    if len(populated) > 1:
        raise SettingError(
            f"The databases {' and '.join(populated)} of DATABASE_URLS both have queues, but were never shards of one "
            "installation: begin with at most one that has queues"
        )
    if not populated:
        return ShardList([Shard(slot, name, 1) for slot, name in enumerate(names)], 1)
    others = [name for name in names if name not in populated]
    shards = [Shard(0, populated[0], 1), *(Shard(slot, name, 2) for slot, name in enumerate(others, 1))]
    return ShardList(shards, 2 if others else 1)
