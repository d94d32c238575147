"""Parses and renders pops: in a query, in a body, or of a WebSocket."""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Struct

from queen.core import limits
from queen.core.errors import BadRequestError
from queen.engine.handle import EngineHandle
from queen.engine.job import Job
from queen.http.disconnect import serve_or_abandon
from queen.http.fields import GroupName, Label, Mode, Name, Start, between
from queen.http.parsing import check_group, check_name, parse_boolean, parse_integer, parse_time
from queen.http.rendering import render_pop
from queen.http.request import QueenRequest
from queen.log.requests import QUEUE_MODE, Pop, Popped
from queen.security.keyring import Keyring

#: Every other word is ``all``, as in Queen MQ, whose clients send words of their own.
_NEW = frozenset({"new", "new-only"})

#: The most pops that are remembered, and the longest of their queries.
_KNOWN_MAX, _KNOWN_CHARS_MAX = 1000, 200

#: Returns the value of a parameter: a string from a query, JSON from a body.
Given = Callable[[str], Any]


class PopBody(Struct):
    """A pop within another request; the fields are the parameters of `GET /api/v1/pop/queue/{queue}` and `/api/v1/pop`.

    Attributes:
        queue: a queue, and with `partition` one of its partitions. Without one, `namespace` or `task` is required.
        consumerGroup: the group; by default that of the acks. Empty is queue mode.
        wait: wait for a message if there is none, for `timeout` milliseconds.
        subscriptionFrom: an ISO 8601 time, or `now`.
        conflation: refused if true.
    """

    queue: Name | None = None
    partition: Name | None = None
    namespace: Label | None = None
    task: Label | None = None
    consumerGroup: GroupName | None = None  # noqa: N815 - the interface's names
    batch: Annotated[int, between(1, limits.BATCH_MESSAGES_MAX)] | None = None
    partitions: Annotated[int, between(-(10**9), 10**9)] | None = None
    wait: bool = False
    timeout: Annotated[int, between(0, limits.TIMEOUT_MS_MAX)] | None = None
    autoAck: bool = False  # noqa: N815
    subscriptionMode: Mode | None = None  # noqa: N815
    subscriptionFrom: Start | None = None  # noqa: N815
    leaseSeconds: Annotated[int, between(1, limits.LEASE_SECONDS_MAX)] | None = None  # noqa: N815
    conflation: bool = False
    autopilot: bool = False


class PopDefaults(Struct, frozen=True):
    """Defaults of pops."""

    batch: int
    timeout_ms: int
    subscription_mode: str


class Pops:
    """Parses and renders pops.

    Args:
        keys: open encrypted payloads.
    """

    def __init__(self, engine: EngineHandle, defaults: PopDefaults, keys: Keyring | None) -> None:
        self._engine, self._defaults, self._keys = engine, defaults, keys
        #: By queue, partition and query: consumers ask for the same again and again.
        self._known: dict[tuple[str, str | None, str], Pop] = {}

    def of_query(self, queue: str, partition: str | None, query: str, get: Given) -> Pop:
        """The pop of a queue, or of one of its partitions, with this query, which ``get`` reads.

        Raises:
            BadRequestError: a name or a parameter is invalid; names it.
        """
        key = queue, partition, query
        pop = self._known.get(key)
        if pop is None:
            pop = self.of(get, place_of(queue, partition, None, None))
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            if len(query) <= _KNOWN_CHARS_MAX:
                self._known[key] = pop
        return pop

    def of(self, get: Given, place: dict[str, Any]) -> Pop:
        """The pop with the given parameters.

        Raises:
            BadRequestError: a parameter is invalid; names it.
        """
        if parse_boolean(get("conflation")):
            raise BadRequestError("conflation is not supported: this server delivers every message", "conflation")
        autopilot = parse_boolean(get("autopilot"))
        batch = limits.AUTOPILOT_BATCH_MESSAGES if autopilot else self._defaults.batch
        partitions = limits.AUTOPILOT_PARTITIONS if autopilot else 1
        wait_ms = parse_integer(get("timeout"), "timeout", self._defaults.timeout_ms, 0, limits.TIMEOUT_MS_MAX)
        seconds = parse_integer(get("leaseSeconds"), "leaseSeconds", 0, 1, limits.LEASE_SECONDS_MAX)
        return Pop(
            **place,
            **start_of(get("subscriptionMode"), get("subscriptionFrom"), self._defaults.subscription_mode),
            group=check_group(get("consumerGroup"), "consumerGroup", QUEUE_MODE),
            batch=parse_integer(get("batch"), "batch", batch, 1, limits.BATCH_MESSAGES_MAX),
            partitions=_partitions(get("partitions"), partitions),
            auto_ack=parse_boolean(get("autoAck")),
            lease_seconds=seconds or None,
            wait_ms=wait_ms if parse_boolean(get("wait")) else 0,
        )

    def of_body(self, body: PopBody, group: str | None) -> Pop:
        """The pop within another request; its group is that of the request by default."""
        if body.consumerGroup is None:
            body.consumerGroup = group
        try:
            place = place_of(body.queue, body.partition, body.namespace, body.task)
            return self.of(lambda name: getattr(body, name), place)
        except BadRequestError as problem:
            raise BadRequestError(f"pop.{problem}", f"pop.{problem.field}") from None

    async def answered(self, req: QueenRequest, job: Job) -> Popped:
        """The messages of a pop; nothing if its client has disconnected."""
        if not job.request.wait_ms:
            return await job.future  # type: ignore[no-any-return]
        job.client = req.scope.get("client") or ("", 0)
        return await serve_or_abandon(req, self._engine, job, Popped())

    def render(self, popped: Popped, pop: Pop, *, autopilot: bool) -> bytes:
        """The object that answers a pop with messages."""
        more = (
            b',"autopilot":{"partitions":%d,"batch":%d,"waitMs":0}' % (pop.partitions, pop.batch) if autopilot else b""
        )
        return render_pop(popped, pop.group, more, self._keys)


def place_of(queue: str | None, partition: str | None, namespace: str | None, task: str | None) -> dict[str, Any]:
    """The target of a pop: a queue or partition, or all queues of a namespace and task.

    Raises:
        BadRequestError: there is no target, or a name is invalid.
    """
    if queue is not None:
        check_name(queue, "queue")
        return {"queue": queue, "partition": check_name(partition, "partition") if partition is not None else None}
    if not namespace and not task:
        raise BadRequestError("queue, or namespace or task, is required", "queue")
    for field, label in (("namespace", namespace), ("task", task)):
        if label:
            check_name(label, field)
    return {"queue": "", "namespace": namespace or None, "task": task or None}


def start_of(mode: str | None, since: str | None, default: str) -> dict[str, Any]:
    """Where a new group starts; ``subscriptionFrom`` takes precedence over the mode."""
    if since == "now":
        return {"mode": "new"}
    if since:
        return {"mode": "timestamp", "since": parse_time(since, "subscriptionFrom")}
    return {"mode": "new" if (mode or default) in _NEW else "all"}


def _partitions(given: str | int | None, default: int) -> int:
    number = parse_integer(given, "partitions", default, -(10**9), 10**9)
    return limits.POP_PARTITIONS_MAX if number <= 0 else min(number, limits.POP_PARTITIONS_MAX)
