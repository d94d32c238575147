"""Names of queues and consumer groups: those that exist, and the one that may be meant by a name that does not."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from msgspec import Struct

from queen.cli.client.connection import Server
from queen.cli.client.showing import clean
from queen.cli.errors import FailedError

#: Pages of names to look for similar ones in, and their size.
_PAGES, _PAGE = 10, 1000


class Named(Struct):
    """A queue or group, of which only the name matters."""

    name: str


class Queues(Struct):
    """A page of queues."""

    queues: list[Named]


def unknown_queue(server: Server, queue: str) -> FailedError:
    """The error for a queue that does not exist."""
    return FailedError(unknown("queue", queue, queue_names(server), "queen queues list"))


def unknown_group(server: Server, group: str, queue: str | None) -> FailedError:
    """The error for a consumer group that does not exist; if its queue does not exist either, for that."""
    if queue is not None and not exists(server, queue):
        return unknown_queue(server, queue)
    place = f" on {clean(queue)}" if queue is not None else ""
    return FailedError(unknown("consumer group", group, group_names(server, queue), "queen groups list", place))


def exists(server: Server, queue: str) -> bool:
    """Whether there is a queue of this name."""
    return bool(server.get(Queues, "/api/v1/resources/queues", {"queue": [queue], "limit": 1}).queues)


def there(server: Server, queue: str) -> None:
    """Returns if the queue exists, so that an empty list is not mistaken for one of a misspelt name."""
    if not exists(server, queue):
        raise unknown_queue(server, queue)


def unknown(kind: str, name: str, known: Sequence[str], command: str, place: str = "") -> str:
    """The text of an error for a name that does not exist."""
    near = get_close_matches(name, known, 1)
    advice = f"did you mean {clean(near[0])}?" if near else f"`{command}` lists those that exist"
    return f"there is no {kind} {clean(name)}{place}: {advice}"


def queue_names(server: Server, search: str | None = None) -> list[str]:
    """Names of queues, of which a part may be given."""
    return _names(
        lambda offset: (
            server.get(
                Queues, "/api/v1/resources/queues", {"search": search or None, "limit": _PAGE, "offset": offset}
            ).queues
        )
    )


def group_names(server: Server, queue: str | None = None) -> list[str]:
    """Names of consumer groups, of a queue or of all."""
    found = _names(
        lambda offset: server.get(
            list[Named], "/api/v1/consumer-groups", {"queue": queue, "limit": _PAGE, "offset": offset}
        )
    )
    return list(dict.fromkeys(found))


def _names(page_at: Callable[[int], Sequence[Named]]) -> list[str]:
    found: list[str] = []
    for number in range(_PAGES):
        page = page_at(number * _PAGE)
        found += [each.name for each in page]
        if len(page) < _PAGE:
            break
    return found
