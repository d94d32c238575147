"""The cache of a worker: names and numbers of queues, partitions and groups, so that the hot path never asks twice.

Any entry may be forgotten at any time. Entries are forgotten when a procedure says that a number is unknown, because
the queue was deleted.
"""

from collections.abc import Iterable, Sequence

from queen.engine.ports import Database, PartitionName, PushOptions, Subscription
from queen.log.requests import QUEUE_MODE, Pop, Push


class MetadataCache:
    """Caches for one worker, bounded by ``limit`` entries each."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._parts: dict[tuple[str, str], int] = {}
        self._names: dict[int, PartitionName] = {}
        self._groups: dict[tuple[str, str], Subscription] = {}
        self._push_options: PushOptions | None = None

    async def partitions(self, keys: Iterable[tuple[str, str]], *, create: bool) -> dict[tuple[str, str], int]:
        """The numbers of partitions by (queue, partition); missing ones are created, or left out."""
        found = {key: self._parts.get(key) for key in keys}
        missing = [key for key, part_id in found.items() if part_id is None]
        if missing:
            numbers = await self._database.resolve_partitions(missing, create=create)
            for key, (queue_id, part_id) in zip(missing, numbers, strict=True):
                # A queue that is being deleted has no number; the next attempt creates it again.
                if queue_id is not None and part_id is not None:
                    self._remember(PartitionName(part_id, queue_id, *key))
                    found[key] = part_id
        return {key: part_id for key, part_id in found.items() if part_id is not None}

    async def partition(self, queue: str, partition: str) -> int | None:
        """The number of one partition, or ``None`` if it does not exist."""
        part_id = self._parts.get((queue, partition))
        if part_id is None:
            [(queue_id, part_id)] = await self._database.resolve_partitions([(queue, partition)], create=False)
            if queue_id is not None and part_id is not None:
                self._remember(PartitionName(part_id, queue_id, queue, partition))
        return part_id

    def known_partitions(self, pushes: Iterable[Push]) -> dict[tuple[str, str], int] | None:
        """The numbers of the partitions that these push to, by (queue, partition); ``None`` if one is not cached."""
        found = {}
        for push in pushes:
            for batch in push.batches:
                part_id = self._parts.get((batch.queue, batch.partition))
                if part_id is None:
                    return None
                found[batch.queue, batch.partition] = part_id
        return found

    def known_partition(self, queue: str, partition: str) -> int | None:
        """The number of a partition, if it is cached."""
        return self._parts.get((queue, partition))

    def known_group_at(self, part_id: int, group: str) -> int | None:
        """The number of a group on the queue of a partition, if it is cached."""
        name = self._names.get(part_id)
        known = self._groups.get((name.queue, group)) if name is not None else None
        return known.grp_id if known is not None else None

    async def names(self, part_ids: Iterable[int]) -> dict[int, PartitionName]:
        """The names of the partitions that exist, also of those that are forgotten while others are looked up."""
        names = {part_id: self._names.get(part_id) for part_id in part_ids}
        missing = [part_id for part_id, name in names.items() if name is None]
        for name in await self._database.describe_partitions(missing) if missing else ():
            self._remember(name)
            names[name.part_id] = name
        return {part_id: name for part_id, name in names.items() if name is not None}

    def known_group(self, queue: str, queue_id: int | None, group: str) -> Subscription | None:
        """A group that has begun and has all its cursors, if it is cached.

        ``queue_id``, if known, distinguishes a queue from an earlier one of the same name.
        """
        known = self._groups.get((queue, group))
        return known if known is not None and queue_id in (None, known.queue_id) else None

    async def subscribed_group(self, queue: str, pop: Pop, part_id: int | None, wanted: int) -> Subscription:
        """The group of a pop, created at its first pop.

        A named group creates the queue too, so that it misses nothing; queue mode always starts at the oldest message.

        Args:
            queue: the name of the queue.
            pop: names the group, and where it starts.
            part_id: the partition of the pop, if it names one.
            wanted: how many partitions that have been ready since the group began are enough, if it names none.
        """
        mode, since = ("all", None) if pop.group == QUEUE_MODE else (pop.mode, pop.since)
        group = await self._database.subscribe(
            queue, pop.group, mode, since, create_queue=pop.group != QUEUE_MODE, create_group=True,
            part=part_id, wanted=wanted,
        )  # fmt: skip
        self._remember_group(queue, pop.group, group)
        return group

    async def group(self, name: PartitionName, group: str) -> int | None:
        """The number of a group on the queue of a partition, or ``None`` if it does not exist.

        Forgets the partition if its queue turns out to have been deleted.
        """
        group_key = (name.queue, group)
        known = self._groups.get(group_key)
        if known is not None and known.queue_id == name.queue_id:
            return known.grp_id
        found = await self._database.subscribe(
            *group_key, "all", None, create_queue=False, create_group=False, part=name.part_id
        )
        if found.queue_id != name.queue_id:
            self.forget_queue(name.queue)
            return None
        self._remember_group(*group_key, found)
        return found.grp_id

    async def push_options(self) -> PushOptions:
        """What a push has to know of queues. If it has changed, the push is refused; then forget it and try again."""
        if self._push_options is None:
            self._push_options = await self._database.read_push_options()
        return self._push_options

    @property
    def known_push_options(self) -> PushOptions | None:
        """The same, if it is cached."""
        return self._push_options

    def forget_push_options(self) -> None:
        """Forgets the push options, because they have changed."""
        self._push_options = None

    def knows(self, part_id: int) -> bool:
        """Whether a partition is cached."""
        return part_id in self._names

    def forget_partitions(self, part_ids: Sequence[int]) -> None:
        """Forgets partitions that a procedure did not know: their queues were deleted."""
        for queue in {self._names[part_id].queue for part_id in part_ids if part_id in self._names}:
            self.forget_queue(queue)

    def forget_queue(self, queue: str) -> None:
        """Forgets a queue that was deleted or configured, here or by another worker."""
        for name in [name for name in self._names.values() if name.queue == queue]:
            self._forget(name)
        for key in [key for key in self._groups if key[0] == queue]:
            del self._groups[key]

    def _remember(self, name: PartitionName) -> None:
        self._parts[name.queue, name.partition] = name.part_id
        self._names[name.part_id] = name
        if len(self._names) > self._limit:
            self._forget(next(iter(self._names.values())))

    def _forget(self, name: PartitionName) -> None:
        self._names.pop(name.part_id, None)
        self._parts.pop((name.queue, name.partition), None)

    def _remember_group(self, queue: str, group: str, subscription: Subscription) -> None:
        """Caches a group, unless it lacks cursors or has a start in the future: then the next call may differ."""
        if subscription.grp_id is None or not subscription.complete or subscription.starts_in is not None:
            return
        self._groups[queue, group] = subscription
        if len(self._groups) > self._limit:
            del self._groups[next(iter(self._groups))]
