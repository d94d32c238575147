"""What shows a violation: the requests of a scenario as a shell script, or the calls of a workload that concern it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias
from urllib.parse import unquote

from ..history import to_line

#: Shorter texts in answers are words, not ids that another run would have others of.
_ID_CHARS_MIN = 8
_PAUSE_S, _SHOWN_CHARS, _CALLS_MAX = 0.2, 300, 200
_HEAD = """#!/bin/sh
# {what}
# Seen: {seen}
# Needs curl and jq. The answer to each request is in the file of its number.
URL=${{1:-{url}}} RUN=try-$$
cd "$(mktemp -d)" || exit 1
"""
_SIGNED = ' ${QUEEN_TOKEN:+-H "Authorization: Bearer $QUEEN_TOKEN"}'


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer, if there was one; times of the monotonic clock, in seconds."""

    method: str
    path: str
    body: bytes | None
    began: float
    ended: float
    status: int | None = None
    answer: bytes = b""

    @property
    def request(self) -> str:
        """Everything in the request that may name something."""
        return unquote(self.path) + (self.body or b"").decode(errors="replace")

    @property
    def is_empty_pop(self) -> bool:
        """Whether it found nothing."""
        return "/pop" in self.path and self.status in {200, 204} and not _ids(self.answer)


_Values: TypeAlias = dict[str, tuple[int, str]]
"""Where a value of an answer is: the number of the request, and its path for jq."""


def script(url: str, exchanges: Sequence[Exchange], queues: Collection[str], prefix: str, what: str, seen: str) -> str:
    """A shell script that sends again what led to a violation.

    Args:
        url: of the server; another may be given to the script.
        exchanges: those of the scenario, in their order; the last one shows the violation.
        queues: the names or ids of its queues: only those that the last request is about are kept.
        prefix: of the names of queues, in whose place each run of the script puts a new one.
        what: the guarantee, for people.
        seen: what was seen, for people.
    """
    steps = list(_without_polls(_about_the_last(sorted(exchanges, key=lambda each: each.began), queues)))
    places: _Values = {}
    lines, said = [_HEAD.format(what=_line(what), seen=_line(seen), url=url)], prefix
    beside_until = 0.0
    for number, step in enumerate(steps, 1):
        said += step.request
        if 0 < beside_until <= step.began:
            lines.append("wait")
            beside_until = 0.0
        if (pause_s := _pause(steps[:number])) >= _PAUSE_S:
            lines.append(f"sleep {pause_s:.1f}")
        is_beside = any(after.began < step.ended for after in steps[number : number + 1])
        if is_beside:
            beside_until = max(beside_until, step.ended)
        lines += _command(number, step, places, prefix, is_beside=is_beside)
        places = {value: (number, path) for value, path in _ids(step.answer).items() if value not in said} | places
    return "\n".join([*lines, "wait", f'echo "The last answer: $(cat {len(steps)})"', ""])


def _pause(steps: Sequence[Exchange]) -> float:
    """How long the scenario waited before the last of these."""
    if len(steps) < 2:
        return 0.0
    before, step = steps[-2:]
    return step.began - (before.ended if before.ended <= step.began else before.began)


def _line(text: str) -> str:
    return " ".join(text.split())


def _about_the_last(exchanges: Sequence[Exchange], queues: Collection[str]) -> list[Exchange]:
    """Those that are about the same queues as the last one, and about queues that these are about besides."""
    topics = _topics(exchanges, queues)
    wanted = topics[-1] if topics else frozenset()
    while more := frozenset(wanted).union(*(topic for topic in topics if topic & wanted)) - wanted:
        wanted |= more
    return [each for each, topic in zip(exchanges, topics, strict=True) if topic & wanted or not wanted]


def _topics(exchanges: Sequence[Exchange], queues: Collection[str]) -> list[frozenset[str]]:
    """The queues that each is about: it names them, or an id that was in an answer about them."""
    owners: dict[str, frozenset[str]] = {}
    topics: list[frozenset[str]] = []
    for each in exchanges:
        request = each.request
        named = {queue for queue in queues if re.search(f"{re.escape(queue)}(?![0-9a-zA-Z-])", request)}
        known = [owner for value, owner in owners.items() if value in request]
        topics.append(frozenset(named).union(*known))
        owners |= dict.fromkeys(_ids(each.answer).keys() - owners.keys(), topics[-1])
    return topics


def _without_polls(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """Of pops that were sent again and again until there was something only the last."""
    for each, after in pairwise(exchanges):
        if not (each.is_empty_pop and (each.method, each.path) == (after.method, after.path)):
            yield each
    yield from exchanges[-1:]


def _command(number: int, step: Exchange, places: _Values, prefix: str, *, is_beside: bool) -> Iterator[str]:
    answer = step.answer[:_SHOWN_CHARS].decode(errors="replace")
    answer = answer.replace(prefix, "$RUN") if prefix else answer
    yield f"# {number}: was answered {step.status} {_line(answer)}" if step.status else f"# {number}: left unanswered"
    limit = "" if step.status else f" -m {max(step.ended - step.began, 1):.0f}"
    line = f'curl -gsS -X {step.method} "$URL{_written(step.path, places, prefix)}" -o {number}{limit}' + _SIGNED
    tail = " &" if is_beside else ""
    if step.body is None:
        yield line + tail
        return
    yield f"{line} -H 'Content-Type: application/json' --data-binary @- <<END{tail}"
    yield _written(step.body.decode(errors="replace"), places, prefix)
    yield "END"


def _written(text: str, places: _Values, prefix: str) -> str:
    """The text as a shell reads it: what comes from an earlier answer is taken from there."""
    known = sorted([*places, *([prefix] if prefix else [])], key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known)) if known else r"(?!)")
    pieces, end = [], 0
    for match in pattern.finditer(text):
        pieces.append(_escaped(text[end : match.start()]))
        number, path = places.get(match[0], (0, ""))
        pieces.append(f"$(jq -r '{path}' {number})" if number else "$RUN")
        end = match.end()
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r"([\\$`])", r"\\\1", text)


def _ids(answer: bytes) -> dict[str, str]:
    """Texts of an answer that may be ids, with their paths for jq."""
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for value, path in _leaves(told, ""):
        if len(value) >= _ID_CHARS_MIN and " " not in value:
            found.setdefault(value, path or ".")
    return found


def _leaves(told: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(told, str):
        yield told, path
    elif isinstance(told, dict):
        for name, each in told.items():
            if name not in {"data", "payload", "createdAt", "created_at"}:
                yield from _leaves(each, f"{path}.{name}" if re.fullmatch(r"\w+", name) else f'{path}["{name}"]')
    elif isinstance(told, list):
        for number, each in enumerate(told):
            yield from _leaves(each, f"{path or '.'}[{number}]")


def file_name(id_: str, check: str, evidence: str) -> str:
    """A name for the file of what shows a violation."""
    words = re.sub(r"\W+", "-", check).strip("-")
    return f"{id_}-{words}.{'sh' if evidence.startswith('#!') else 'jsonl'}"


def calls_about(records: Iterable[Any], subject: str) -> str:
    """The calls that name something, as JSON lines in the order in which they began."""
    named = re.compile(rf'"{re.escape(json.dumps(subject)[1:-1])}"')
    whole = re.compile(re.escape(json.dumps(subject.rpartition("/")[2])))
    lines = [(getattr(record, "invoked", 0), to_line(record)) for record in records]
    found = [line for line in lines if named.search(line[1])] or [line for line in lines if whole.search(line[1])]
    return "\n".join([line for _, line in sorted(found)][:_CALLS_MAX])
