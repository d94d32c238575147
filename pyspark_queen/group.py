"""Reads as a consumer group over HTTP: pops before a batch, and acks after it.

The offset of the stream says which messages its batches had, so what comes again (because an ack was late, or lost in a
restart) is acked, and not read twice.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .columns import TYPES, check_type
from .errors import DataLossError, OptionError, SourceError
from .http import Http
from .options import GroupOptions, nearest

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1 has neither limits nor this trigger for Python sources

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing."""


_FIELDS = {
    "queue": "queue", "partition": "partition", "offset": "offset", "transactionId": "transaction_id",
    "payload": "data", "headers": "headers", "createdAt": "created_at",
    "producerSub": "producer_sub", "traceId": "trace_id",
}  # fmt: skip
_BATCH_MAX, _TASK = 10_000, 10_000
_LOOK_S, _WAIT_MS = 0.5, 500
Ends = dict[str, str]
"""By id of a partition: the offsets that were read, such as ``0-17 19-19``."""


class Message(Struct, frozen=True, rename="camel"):
    """A message of a pop."""

    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    lease_id: str
    offset: int
    data: Raw
    created_at: datetime
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: dict[str, str] | None = None
    error: str | None = None
    error_code: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Its place."""
        return self.partition_id, self.offset


class _Popped(Struct):
    messages: list[Message]


class Runs:
    """A set of offsets, as runs."""

    def __init__(self, text: str = "") -> None:
        bounds = (run.partition("-") for run in text.split())
        self._runs = [(int(first), int(last)) for first, _, last in bounds]

    def __contains__(self, offset: int) -> bool:
        return any(first <= offset <= last for first, last in self._runs)

    def __str__(self) -> str:
        return " ".join(f"{first}-{last}" for first, last in self._runs)

    def each(self) -> list[tuple[int, int]]:
        """First and last offset of each run."""
        return self._runs

    def add(self, offsets: Sequence[int]) -> None:
        """Adds offsets."""
        runs = sorted([*self._runs, *((offset, offset) for offset in offsets)])
        self._runs = []
        for first, last in runs:
            if self._runs and first <= self._runs[-1][1] + 1:
                self._runs[-1] = (self._runs[-1][0], max(last, self._runs[-1][1]))
            else:
                self._runs.append((first, last))

    def beside(self, other: "Runs") -> Iterator[int]:
        """The offsets that the other set has not, which are few beside those that both have."""
        for first, last in self._runs:
            inside = [(max(a, first), min(b, last)) for a, b in other.each() if a <= last and b >= first]
            for start, end in _rest(first, last, inside):
                yield from range(start, end + 1)


def _rest(first: int, last: int, inside: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of a run."""
    for start, end in inside:
        if first < start:
            yield first, start - 1
        first = end + 1
    if first <= last:
        yield first, last


class Task(InputPartition):
    """Messages of a batch, as rows."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows


class GroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What the group is given, each message once, in batches of a limited number."""

    def __init__(self, options: GroupOptions, schema: StructType) -> None:
        self._options, self._names = options, _names(schema)
        self._held: dict[tuple[str, int], Message] = {}
        self._reached: Ends | None = None
        self._http: Http | None = None

    @property
    def _server(self) -> Http:
        if self._http is None:
            self._http = Http(self._options.url, self._options.token, self._options.timeout_seconds)
        return self._http

    def initialOffset(self) -> Ends:  # noqa: N802 - Spark's names, also below
        """Nothing was read."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The stream ends when a pop finds nothing."""

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802 - a type that Spark 4.1 has not
        """All of a batch: pops have the limit."""
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Ends | None:  # noqa: N802
        """None: it is not known."""
        return None

    def latestOffset(self, start: Ends | None = None, limit: object = None) -> Ends:  # noqa: ARG002, N802
        """Pops the next batch. Spark 4.1 names no start: then it is where the last batch of this run ended."""
        begin = (self._reached if start is None else start) or {}
        # Spark asks for it when all before has been processed, and tells a source that only with the next batch.
        self.commit(begin)
        most = self._options.max_offsets_per_trigger
        self._pop(begin, most - len(self._held))
        # After a restart more may be held: a batch that is read again is asked for with what is behind it.
        self._reached = _with(begin, list(self._held)[:most])
        return self._reached

    def _pop(self, begin: Ends, room: int) -> None:
        """Takes messages until there is no room, or there are no more.

        What earlier batches had takes no room: a batch of nothing else would end a stream of ``availableNow``.
        """
        came, known = 0, _runs(begin)
        while came < room:
            messages = self._of_queue(min(room - came, _BATCH_MAX), wait=not came)
            came += self._take(messages, known)
            if not messages:
                break

    def _take(self, messages: list[Message], known: dict[str, Runs]) -> int:
        """Holds what comes for the first time, and acknowledges what earlier batches had; how many it holds now.

        Raises:
            SourceError: the server cannot decrypt a message, which would be lost if it was acknowledged.
        """
        new = [each for each in messages if each.offset not in known.get(each.partition_id, ())]
        for each in new:
            if each.error_code is not None:
                raise SourceError(
                    f"{self._server.name} cannot decrypt the message {each.queue}/{each.partition}, offset "
                    f"{each.offset}: {each.error}. It is not acknowledged: start the stream again when the server has "
                    "the key"
                )
        self._held |= {each.key: each for each in new}
        self._ack([each for each in messages if each.offset in known.get(each.partition_id, ())])
        return len(new)

    def _of_queue(self, most: int, *, wait: bool) -> list[Message]:
        """Messages of any partitions."""
        path = f"/api/v1/pop/queue/{quote(self._options.queue, safe='')}"
        return self._more(path, most, partitions=0, wait="true" if wait else "false", timeout=_WAIT_MS)

    def _more(self, path: str, most: int, **params: str | int) -> list[Message]:
        options = self._options
        answer = self._server.call(
            "GET", path, f"give messages of {options.queue}", "What was read before is acknowledged", None,
            consumerGroup=options.group, batch=most, leaseSeconds=options.lease_seconds, **params,
        )  # fmt: skip
        return [] if answer.status_code == 204 else msgspec.json.decode(answer.content, type=_Popped).messages

    def partitions(self, start: Ends, end: Ends) -> Sequence[InputPartition]:
        """The tasks of a batch.

        Raises:
            DataLossError: after a restart, the group is not given the messages of the batch again.
        """
        self._reached = end
        wanted = [
            (part, offset) for part, text in end.items() for offset in Runs(text).beside(Runs(start.get(part, "")))
        ]
        self._await(start, set(wanted))
        there = [self._held[key] for key in sorted(wanted) if key in self._held]
        rows = [tuple(_value(each, name) for name in self._names) for each in there]
        return [Task(rows[n : n + _TASK]) for n in range(0, len(rows), _TASK)]

    def _await(self, start: Ends, wanted: set[tuple[str, int]]) -> None:
        """After a restart, the messages come again when the leases of the former run end."""
        known, patience = _runs(start), self._options.lease_seconds + self._options.timeout_seconds
        deadline = monotonic() + patience
        while missing := wanted - self._held.keys():
            begun = monotonic()
            self._ask_for(missing, known)
            left = wanted - self._held.keys()
            if len(left) < len(missing):
                deadline = monotonic() + patience
            elif begun > deadline:
                self._miss(missing)
                return
            elif left:
                # Not more than half of the time: there may be thousands of partitions.
                sleep(max(_LOOK_S, monotonic() - begun))

    def _ask_for(self, missing: set[tuple[str, int]], known: dict[str, Runs]) -> None:
        """Pops the partitions of these messages, and no other: what else waits would take their place.

        Before them may come what earlier batches had, of which a late ack was refused: so room for a batch more.
        """
        for part, number in Counter(part for part, _ in missing).items():
            most = min(number + self._options.max_offsets_per_trigger, _BATCH_MAX)
            self._take(self._more("/api/v1/pop", most, partition=part), known)

    def _miss(self, missing: set[tuple[str, int]]) -> None:
        if not self._options.fail_on_data_loss:
            return
        part, offset = min(missing)
        raise DataLossError(
            f"the last batch had {len(missing)} messages that the group {self._options.group} is not given again, such "
            f"as offset {offset} of the partition with the id {part}. Has another consumer of the group finished them? "
            "To go on without them: failOnDataLoss=false"
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a task."""
        return iter(partition.rows if isinstance(partition, Task) else ())

    def commit(self, end: Ends) -> None:
        """Acknowledges what the batches up to here had."""
        known = _runs(end)
        done = [each for each in self._held.values() if each.offset in known.get(each.partition_id, ())]
        self._ack(done)
        for each in done:
            del self._held[each.key]

    def _ack(self, done: list[Message]) -> None:
        """Refused are acks after the lease has ended: these messages come again, and are acknowledged then."""
        for n in range(0, len(done), _BATCH_MAX):
            items = [
                {"transactionId": each.transaction_id, "partitionId": each.partition_id, "leaseId": each.lease_id,
                 "status": "completed"}
                for each in done[n : n + _BATCH_MAX]
            ]  # fmt: skip
            body = msgspec.json.encode({"acknowledgments": items, "consumerGroup": self._options.group})
            self._server.call("POST", "/api/v1/ack/batch", "acknowledge messages", "They come again", body)

    def stop(self) -> None:
        """Closes its connections. What was not acknowledged comes again when its leases end."""
        if self._http is not None:
            self._http.close()


def _runs(ends: Ends) -> dict[str, Runs]:
    return {part: Runs(text) for part, text in ends.items()}


def _with(begin: Ends, keys: list[tuple[str, int]]) -> Ends:
    """The offset behind these messages, too."""
    by_part: dict[str, list[int]] = {}
    for part, offset in keys:
        by_part.setdefault(part, []).append(offset)
    ends = dict(begin)
    for part, offsets in by_part.items():
        runs = Runs(begin.get(part, ""))
        runs.add(offsets)
        ends[part] = str(runs)
    return ends


def _names(schema: StructType) -> list[str]:
    for field in schema.fields:
        if field.name not in _FIELDS:
            raise OptionError(f"a message of a group has no column {field.name}{nearest(field.name, _FIELDS)}")
        check_type(field.name, field.dataType, TYPES[field.name])
    return schema.fieldNames()


def _value(message: Message, name: str) -> object:
    value = getattr(message, _FIELDS[name])
    return bytes(value).decode() if isinstance(value, Raw) else value
