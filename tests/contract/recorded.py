"""Which answers of a tour replace the recorded examples.

Ids, times and measurements differ in each run. An example stays as it is unless it differs in something else, so that
a change of one operation changes the examples of that operation only.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VARYING = re.compile(_UUID.pattern + r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?")
#: Operations whose values are measurements: only the fields and their types count.
_MEASURED = frozenset({
    "getAnalytics", "getGroupLag", "getMetrics", "getOverview", "getParkedPops", "getPostgresStatistics", "getQueueLag",
    "getQueueOperations", "getQueueStatus", "getRetention", "getStatus", "getSystemMetrics", "getWorkerMetrics",
    "listConsumerGroups", "listLaggingPartitions",
})  # fmt: skip
#: Fields that differ in each run: process ids, and ages in seconds.
_VARYING_FIELDS = frozenset({"maxTimeLag", "statsAge", "timeLagSeconds", "worker", "worker_id"})


def settled(recorded: Mapping[str, Any], toured: Mapping[str, Any]) -> dict[str, Any]:
    """The examples to keep: recorded ones that are still right, toured ones otherwise, with the ids of the former."""
    right = {
        name: recorded[name]
        for name, example in toured.items()
        if name in recorded and _is_alike(recorded[name], example, name in _MEASURED)
    }
    ids = dict(pair for name, example in right.items() for pair in _ids(toured[name], example))
    return {name: right[name] if name in right else _with_ids(example, ids) for name, example in toured.items()}


def _is_alike(old: Any, new: Any, measured: bool) -> bool:
    if measured and (old is None or new is None):
        return True
    if type(old) is not type(new):
        return measured and isinstance(old, int | float) and isinstance(new, int | float)
    match old:
        case dict():
            return old.keys() == new.keys() and all(
                name in _VARYING_FIELDS or _is_alike(value, new[name], measured) for name, value in old.items()
            )
        case list():
            alike = all(_is_alike(one, other, measured) for one, other in zip(old, new, strict=False))
            return alike and (measured or len(old) == len(new))
        case str():
            return measured or _VARYING.sub("", old) == _VARYING.sub("", new)
        case _:
            return measured or bool(old == new)


def _ids(new: Any, old: Any) -> Iterator[tuple[str, str]]:
    """Ids of an answer, with those of an example that is like it."""
    match new, old:
        case dict(), dict():
            for name in new.keys() & old.keys():
                yield from _ids(new[name], old[name])
        case list(), list():
            for one, other in zip(new, old, strict=False):
                yield from _ids(one, other)
        case str(), str():
            yield from zip(_UUID.findall(new), _UUID.findall(old), strict=False)


def _with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {name: _with_ids(each, ids) for name, each in value.items()}
        case list():
            return [_with_ids(each, ids) for each in value]
        case str():
            return _UUID.sub(lambda found: ids.get(found[0], found[0]), value)
        case _:
            return value
