"""Which messages a query reads, and in which tasks."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from . import moves
from .columns import Place
from .database import Connection
from .errors import DataLossError, OptionError, SourceError
from .options import EARLIEST, LATEST, Log, Offsets, ReadOptions, nearest

BYTES_A_TASK = 128 << 20
_FULL = 1 + 1e-9

_PARTITIONS = """
SELECT p.number, q.name AS queue, p.partition, p.next_off, p.leaving, coalesce(s.oldest, p.next_off) AS oldest
FROM queen.queues AS q
JOIN (
    SELECT h.id AS number, h.queue_id, h.name AS partition, l.next_off, false AS leaving
    FROM queen.partitions AS h JOIN queen.log_ends AS l ON l.part_id = h.id
    UNION ALL
    SELECT m.number, m.queue_id, m.partition, m.next_off, true FROM leaving AS m
) AS p ON p.queue_id = q.id
LEFT JOIN LATERAL (
    SELECT f.last_off - f.n + 1 AS oldest FROM queen.segments AS f
    WHERE f.part_id = p.number ORDER BY f.last_off LIMIT 1
) AS s ON true
WHERE q.name = ANY($1::text []) AND ($2::bigint [] IS NULL OR p.number = ANY($2::bigint []))
ORDER BY p.number
"""
_QUEUES = "SELECT name FROM queen.queues WHERE $1::text IS NULL OR name ~ ('^(?:' || $1 || ')$') ORDER BY name"
_SPANS = """
WITH s AS (
    SELECT w.part_id, w.since, w.till, g.last_off,
        greatest(g.last_off - g.n + 1, w.since) AS first,
        least(g.last_off + 1, w.till) - greatest(g.last_off - g.n + 1, w.since) AS n,
        g.n / $4::float + octet_length(g.data) * $5::float AS weight
    FROM unnest($1::bigint [], $2::bigint [], $3::bigint []) AS w (part_id, since, till)
    JOIN queen.segments AS g ON g.part_id = w.part_id AND g.last_off >= w.since AND g.n > 0
    WHERE g.last_off - g.n + 1 < w.till
),
t AS (
    SELECT s.*, ceil(sum(s.weight) OVER (PARTITION BY s.part_id ORDER BY s.last_off) - 1e-9) AS span FROM s
)
SELECT part_id, min(first) AS since, max(last_off) AS last, least(max(last_off) + 1, min(till)) AS till,
    sum(n)::bigint AS n, sum(weight) AS weight
FROM t GROUP BY part_id, span ORDER BY part_id, span
"""
# In the order of their segments, times never fall within a partition.
_AT_TIME = """
SELECT p.part_id, p.acked + 1 AS off
FROM queen.places(
    $1::bigint [], timestamptz '1970-01-01 00:00:00+00' + ($2::bigint - 1) * interval '1 microsecond'
) AS p
"""


class Lane(Struct, frozen=True):
    """A partition with its oldest kept offset and its log end."""

    place: Place
    oldest: int
    end: int


class Range(Struct, frozen=True):
    """Offsets of a partition from one on and before another."""

    place: Place
    since: int
    till: int


class Span(Struct, frozen=True):
    """A part of a range for one task: up to the segment ``last``, with ``n`` messages."""

    place: Place
    since: int
    till: int
    last: int
    n: int


class Bounds(Struct, frozen=True):
    """What filters of the query leave: names (None: any), offsets and times from one on and before another."""

    queues: frozenset[str] | None = None
    partitions: frozenset[str] | None = None
    since: int = 0
    till: int = 2**60
    since_us: int | None = None
    till_us: int | None = None

    def names(self, column: str, names: Iterable[str]) -> "Bounds":
        """Also only these names."""
        chosen, before = frozenset(names), getattr(self, column)
        return replace(self, **{column: chosen if before is None else chosen & before})

    def from_offset(self, offset: int) -> "Bounds":
        """Also only from this offset on."""
        return replace(self, since=max(self.since, offset))

    def before_offset(self, offset: int) -> "Bounds":
        """Also only before this offset."""
        return replace(self, till=min(self.till, offset))

    def from_time(self, time_us: int) -> "Bounds":
        """Also only from this time on."""
        return replace(self, since_us=time_us if self.since_us is None else max(self.since_us, time_us))

    def before_time(self, time_us: int) -> "Bounds":
        """Also only before this time."""
        return replace(self, till_us=time_us if self.till_us is None else min(self.till_us, time_us))


#: By database: what is read of it.
Databases = Sequence[tuple[Log, Connection]]


async def lanes(
    databases: Databases, options: ReadOptions, *, strict: bool = True, numbers: Sequence[int] | None = None
) -> list[list[Lane]]:
    """The partitions that the options name, or of them those with such numbers, by database.

    Raises:
        OptionError: a queue does not exist, or with ``strict`` a partition; without ``failOnDataLoss``, only if
            ``strict``.
    """
    names = await _queues(databases, options, strict=strict)
    query = moves.with_leaving(_PARTITIONS, len(databases))
    rows = [await connection.fetch(query, names, numbers) for _, connection in databases]
    homes = moves.homes(rows)
    found = [
        [
            Lane(Place(row["number"], row["queue"], row["partition"], log.name), row["oldest"], row["next_off"])
            for row in some
            if homes[row["number"]] is row
        ]
        for (log, _), some in zip(databases, rows, strict=True)
    ]
    if not options.partition:
        return found
    for name in options.partition if strict else ():
        _must_exist("partition", name, [lane.place.partition for lane in chain(*found)])
    return [[lane for lane in each if lane.place.partition in options.partition] for each in found]


async def _queues(databases: Databases, options: ReadOptions, *, strict: bool) -> list[str]:
    """The names of the queues."""
    try:
        rows = [row for _, connection in databases for row in await connection.fetch(_QUEUES, options.queue_pattern)]
    except asyncpg.InvalidRegularExpressionError as problem:
        raise OptionError(f"queuePattern: PostgreSQL says {problem}") from None
    names = sorted({row["name"] for row in rows})
    if options.queue:
        for name in options.queue if strict or options.fail_on_data_loss else ():
            _must_exist("queue", name, names)
        return list(options.queue)
    if options.queue_pattern and not names and strict:
        raise OptionError(f"queuePattern: no queue is named like {options.queue_pattern}")
    return names


def _must_exist(what: str, name: str, there: list[str]) -> None:
    if name not in there:
        raise OptionError(f"there is no {what} {name}{nearest(name, dict.fromkeys(there))}")


async def starts(databases: Databases, options: ReadOptions, found: Sequence[Sequence[Lane]]) -> dict[int, int]:
    """By partition: the first offset to read.

    Raises:
        DataLossError: one that was given has been removed.
    """
    if options.starting_timestamp is not None:
        return await at_time(databases, found, options.starting_timestamp)
    first = _chosen("startingOffsets", options.starting_offsets, [*chain(*found)], EARLIEST)
    for lane in chain(*found):
        if first[lane.place.number] < lane.oldest:
            if options.fail_on_data_loss:
                raise _lost(lane.place, first[lane.place.number], lane.oldest)
            first[lane.place.number] = lane.oldest
    return first


async def ends(databases: Databases, options: ReadOptions, found: Sequence[Sequence[Lane]]) -> dict[int, int]:
    """By partition: the offset before which reading ends."""
    if options.ending_timestamp is not None:
        return await at_time(databases, found, options.ending_timestamp)
    return _chosen("endingOffsets", options.ending_offsets, [*chain(*found)], LATEST)


async def at_time(databases: Databases, found: Sequence[Sequence[Lane]], time_us: int) -> dict[int, int]:
    """By partition: the first offset that is not older than a time."""
    offsets: dict[int, int] = {}
    for (_, connection), some in zip(databases, found, strict=True):
        rows = await connection.fetch(_AT_TIME, [lane.place.number for lane in some], time_us)
        offsets |= {row["part_id"]: row["off"] for row in rows}
    return offsets


def _chosen(option: str, given: int | Offsets, found: list[Lane], rest: int) -> dict[int, int]:
    """The offsets that the option names; ``rest``: for partitions that it does not name."""
    offsets: Offsets = {}
    if isinstance(given, int):
        rest = given
    else:
        offsets = given
    there: dict[str, dict[str, Lane]] = {}
    for lane in found:
        there.setdefault(lane.place.queue, {})[lane.place.partition] = lane
    for queue, of_queue in offsets.items():
        if queue not in there:
            raise OptionError(f"{option}: {queue} is not among the queues that are read{nearest(queue, there)}")
        for partition in of_queue:
            if partition not in there[queue]:
                near = nearest(partition, there[queue])
                raise OptionError(f"{option}: {queue} has no partition {partition} that is read{near}")
    chosen = {}
    for lane in found:
        place = lane.place
        offset = offsets.get(place.queue, {}).get(place.partition, rest)
        if offset > lane.end:
            raise OptionError(f"{option}: {offset} is behind the end of {place.queue}/{place.partition}, {lane.end}")
        chosen[place.number] = {EARLIEST: lane.oldest, LATEST: lane.end}.get(offset, offset)
    return chosen


async def ranges(databases: Databases, options: ReadOptions, bounds: Bounds) -> list[list[Range]]:
    """What a batch read reads, by database."""
    found = await lanes(databases, options)
    first, last = await starts(databases, options, found), await ends(databases, options, found)
    since = {} if bounds.since_us is None else await at_time(databases, found, bounds.since_us)
    till = {} if bounds.till_us is None else await at_time(databases, found, bounds.till_us)

    def chosen(lane: Lane) -> Range | None:
        place, number = lane.place, lane.place.number
        if bounds.queues is not None and place.queue not in bounds.queues:
            return None
        if bounds.partitions is not None and place.partition not in bounds.partitions:
            return None
        begin = max(first[number], lane.oldest, bounds.since, since.get(number, 0))
        end = min(last[number], bounds.till, till.get(number, lane.end))
        return Range(place, begin, end) if begin < end else None

    return [[each for each in map(chosen, some) if each is not None] for some in found]


def _lost(place: Place, wanted: int, there: int) -> DataLossError:
    """The error for messages that retention or somebody has removed."""
    return DataLossError(
        f"messages of {place.queue}/{place.partition} were removed before they were read: offset {wanted} is wanted, "
        f"and {there} is the oldest. To go on without them: failOnDataLoss=false"
    )


async def tasks(
    connection: Connection, chosen: list[Range], options: ReadOptions, *, with_data: bool
) -> list[list[Span]]:
    """The ranges in tasks: a hot partition becomes many, and small partitions share one."""
    whole = sum(each.till - each.since for each in chosen)
    records = min(options.max_records_per_partition, max(math.ceil(whole / options.min_partitions), 1))
    places = {each.place.number: each.place for each in chosen}
    columns = [[each.place.number for each in chosen], [each.since for each in chosen], [each.till for each in chosen]]
    rows = await connection.fetch(_SPANS, *columns, records, 1 / BYTES_A_TASK if with_data else 0.0)
    made: list[list[Span]] = []
    load = math.inf
    for row in rows:
        if load + row["weight"] > _FULL:
            made.append([])
            load = 0.0
        load += row["weight"]
        made[-1].append(Span(places[row["part_id"]], row["since"], row["till"], row["last"], row["n"]))
    if options.fail_on_data_loss and whole != (there := sum(row["n"] for row in rows)):
        raise missing(there, whole)
    return made


def missing(there: int, wanted: int) -> SourceError:
    """The error for messages that were there when the query was planned."""
    return DataLossError(
        f"{wanted - there} of {wanted} messages were removed before they were read, by retention or with their queue. "
        "To go on without them: failOnDataLoss=false"
    )
