"""``GET /api/v1/pop…``: pops of a queue, a partition, or all queues of a namespace and task."""

from typing import Any
from urllib.parse import unquote_to_bytes

import falcon
import falcon.asgi

from queen.core import limits
from queen.core.errors import BadRequestError
from queen.core.operations import QUEUE_MODE, JobType, Pop, Popped
from queen.engine.thread import EngineThread
from queen.http.disconnect import serve_or_abandon
from queen.http.parsing import check_group, check_name, parse_boolean, parse_integer, parse_time
from queen.http.rendering import render_pop
from queen.http.request import QueenRequest
from queen.security.keyring import Keyring

_MODES = {"": "all", "all": "all", "new": "new", "new-only": "new"}


class PopDefaults:
    """What a pop gets that does not say."""

    def __init__(self, batch: int, timeout_ms: int, subscription_mode: str) -> None:
        self.batch, self.timeout_ms, self.subscription_mode = batch, timeout_ms, subscription_mode


class PopResource:
    """Delivers messages, at once or when there are some."""

    def __init__(self, engine: EngineThread, defaults: PopDefaults, keys: Keyring | None) -> None:
        self._engine, self._defaults, self._keys = engine, defaults, keys

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response, place: str = "") -> None:
        """``place`` says whether the path names a queue: ``…/queue/name`` or ``…/queue/name/partition/name``."""
        if place:
            queue, partition = _split(req.scope["raw_path"])
            pop = self._pop(req, queue=queue, partition=partition)
        else:
            pop = self._pop_by_label(req)
        popped = await self._serve(req, pop)
        if not popped.claims:
            resp.status = 204
            return
        resp.content_type = falcon.MEDIA_JSON
        resp.data = render_pop(popped, pop.group, _autopilot(req, pop), self._keys)

    def _pop_by_label(self, req: QueenRequest) -> Pop:
        namespace, task = req.get_param("namespace"), req.get_param("task")
        if not namespace and not task:
            raise BadRequestError("namespace or task is required", "namespace")
        for field, label in (("namespace", namespace), ("task", task)):
            if label:
                check_name(label, field)
        return self._pop(req, queue="", namespace=namespace or None, task=task or None)

    def _pop(self, req: QueenRequest, **place: Any) -> Pop:  # noqa: ANN401 - fields of Pop
        get = req.get_param
        if parse_boolean(get("conflation")):
            raise BadRequestError("conflation: this server has none, it delivers every message", "conflation")
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

    async def _serve(self, req: QueenRequest, pop: Pop) -> Popped:
        job = self._engine.submit(JobType.POP, pop)
        if not pop.wait_ms:
            return await job.future  # type: ignore[no-any-return]
        return await serve_or_abandon(req, self._engine, job, Popped())


def start_of(mode: str | None, since: str | None, default: str) -> dict[str, Any]:
    """Where a group starts, if this is its first contact; ``subscriptionFrom`` wins over the mode."""
    if since == "now":
        return {"mode": "new"}
    if since:
        return {"mode": "timestamp", "since": parse_time(since, "subscriptionFrom")}
    mode = mode or default
    if mode not in _MODES:
        raise BadRequestError(f"subscriptionMode must be all, new or new-only, not {mode[:40]!r}", "subscriptionMode")
    return {"mode": _MODES[mode]}


def _split(path: bytes) -> tuple[str, str | None]:
    """Queue and partition of a path, cut before it is decoded: names may hold slashes, encoded or not."""
    place = path.partition(b"/pop/queue/")[2]
    queue, separator, partition = place.partition(b"/partition/")
    name = check_name(_decoded(queue, "queue"), "queue")
    if not separator or partition in (b"", b"null"):
        return name, None
    return name, check_name(_decoded(partition, "partition"), "partition")


def _decoded(text: bytes, field: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadRequestError(f"{field} is not UTF-8", field) from None


def _partitions(text: str | None, default: int) -> int:
    number = parse_integer(text, "partitions", default, -(10**9), 10**9)
    return limits.POP_PARTITIONS_MAX if number <= 0 else min(number, limits.POP_PARTITIONS_MAX)


def _autopilot(req: QueenRequest, pop: Pop) -> bytes:
    if not parse_boolean(req.get_param("autopilot")):
        return b""
    return b',"autopilot":{"partitions":%d,"batch":%d,"waitMs":0}' % (pop.partitions, pop.batch)
