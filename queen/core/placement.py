"""Where partitions live, if an installation has several databases (shards): a pure function of names.

A partition is made on the shard that the current list of shards names, by rendezvous hashing (Thaler and Ravishankar,
1998), and stays there when the list changes. So an existing partition lives on the shard that one of the lists named at
its time: those are its candidates. ``sql/internal/026_shards.sql`` computes the same, and a shard refuses to make a
partition that belongs elsewhere.
"""

from collections.abc import Sequence
from hashlib import md5
from uuid import UUID, uuid4

from msgspec import Struct, structs

from queen.core.errors import SettingError

#: Numbers of partitions, queues, dead letters, … of a shard begin with its slot: the first 8 of 48 bits.
SLOT_BITS = 40
SLOTS_MAX = 1 << 8
_SEPARATOR = "\x1f"


def slot_of(number: int) -> int:
    """The slot of the shard that gave a number to a partition, a queue, a dead letter or a stream."""
    return number >> SLOT_BITS


def marked(number: UUID, slot: int) -> UUID:
    """The same number as a UUID of version 8 (RFC 9562) whose last byte is the slot of a shard."""
    bits = number.int & ~(0xF << 76) & ~0xFF
    return UUID(int=bits | 8 << 76 | slot)


def slot_of_mark(number: UUID) -> int | None:
    """The slot of the shard that a number names; ``None``: it names none."""
    return number.int & 0xFF if number.version == 8 else None


def lease_on(slot: int) -> UUID:
    """A lease that says on which shard it is."""
    return marked(uuid4(), slot)


def slot_of_lease(text: str) -> int | None:
    """The slot of the shard of a lease; ``None``: it does not say."""
    try:
        return slot_of_mark(UUID(text))
    except ValueError:
        return None


def queue_on(number: UUID, slot: int) -> UUID:
    """The number of a queue of simple-mq or SQS on a shard; as it is on the first one, where all were before."""
    return marked(number, slot) if slot else number


def slot_of_queue(number: UUID) -> int:
    """The slot of the shard of a queue of simple-mq or SQS."""
    return slot_of_mark(number) or 0


class Shard(Struct, frozen=True):
    """One database of several.

    Attributes:
        slot: its number in ids, which is never used again.
        name: from DATABASE_URLS.
        added_in: the version of the list that began to place partitions on it.
        drained_in: the version that ended that; ``None``: it still does.
        retired: whether it has no partitions any more, and may be gone.
    """

    slot: int
    name: str
    added_in: int
    drained_in: int | None = None
    retired: bool = False

    def takes(self, version: int) -> bool:
        """Whether a version of the list places partitions on it."""
        return self.added_in <= version and (self.drained_in is None or self.drained_in > version)


class Move(Struct, frozen=True):
    """A partition that is, or was, moved from or to a database, as that knows it.

    Attributes:
        slot: of the shard to which it goes or has gone.
        state: ``awaited``: it is to come to this database; ``here``: it has come; ``sealed``: it is on its way from
            this database, and no call can use it; ``gone``: it is not here any more, or not awaited any more.
        seq: grows with each change in the database.
    """

    part_id: int
    queue: str
    partition: str
    slot: int
    state: str
    seq: int


class ShardList(Struct, frozen=True):
    """The shards of an installation, as each of them stores it.

    Attributes:
        shards: by slot.
        version: counts changes, from 1.
        opened: the version that places partitions. While it is the one before ``version``, a partition that the two
            place differently is not made.
    """

    shards: Sequence[Shard]
    version: int
    opened: int

    @property
    def in_use(self) -> list[Shard]:
        """The shards that may have partitions."""
        return [shard for shard in self.shards if not shard.retired]

    def find(self, name: str) -> Shard | None:
        """The shard of a name."""
        return next((shard for shard in self.shards if shard.name == name), None)

    def names(self, version: int) -> list[str]:
        """The shards on which a version places partitions."""
        return [shard.name for shard in self.shards if shard.takes(version)]

    def slot(self, name: str) -> int | None:
        """The slot of a name."""
        shard = self.find(name)
        return None if shard is None else shard.slot

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
            f"The databases {' and '.join(populated)} of DATABASE_URLS have queues, but were never shards of one "
            "installation: begin with at most one that has queues"
        )
    if not populated:
        return ShardList([Shard(slot, name, 1) for slot, name in enumerate(names)], 1, 1)
    others = [name for name in names if name not in populated]
    shards = [Shard(0, populated[0], 1), *(Shard(slot, name, 2) for slot, name in enumerate(others, 1))]
    version = 2 if others else 1
    return ShardList(shards, version, version)


def with_added(known: ShardList, name: str) -> ShardList:
    """The next list, which places partitions on one more shard, or again on one that was drained.

    Raises:
        SettingError: it does so already, or there are too many shards.
    """
    version, found = known.version + 1, known.find(name)
    if found is not None and found.drained_in is None:
        raise SettingError(f"{name} is a shard already")
    if found is not None:
        raise SettingError(f"{name} was a shard before: give the database another name, and begin with an empty one")
    if len(known.shards) == SLOTS_MAX:
        raise SettingError(f"An installation has had {SLOTS_MAX} shards, which is the most")
    return ShardList([*known.shards, Shard(len(known.shards), name, version)], version, known.opened)


def with_drained(known: ShardList, name: str) -> ShardList:
    """The next list, which places no more partitions on a shard.

    Raises:
        SettingError: it is no shard, is drained already, or is the last one that takes partitions.
    """
    version = known.version + 1
    found = known.find(name)
    if found is None:
        raise SettingError(f"{name} is no shard: the shards are {', '.join(shard.name for shard in known.shards)}")
    if found.drained_in is not None:
        raise SettingError(f"{name} is drained already")
    if known.names(known.version) == [name]:
        raise SettingError(f"{name} is the only shard that takes partitions: add another one first")
    drained = structs.replace(found, drained_in=version)
    return ShardList([drained if shard is found else shard for shard in known.shards], version, known.opened)


def with_retired(known: ShardList, name: str) -> ShardList:
    """The next list, which does not count on a drained shard any more.

    Raises:
        SettingError: it is not drained.
    """
    found = known.find(name)
    if found is None or found.drained_in is None or found.slot == 0:
        raise SettingError(f"{name} is not drained: `queen shards drain {name}` first; the first shard stays")
    retired = structs.replace(found, retired=True)
    return ShardList([retired if shard is found else shard for shard in known.shards], known.version + 1, known.opened)
