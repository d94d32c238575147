"""The options of the data source: which there are for what, and what they may be."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .errors import OptionError

EARLIEST, LATEST = -2, -1
"""Offsets as in Spark's Kafka source: the oldest message that is kept, and the end of the log."""

Offsets = dict[str, dict[str, int]]
"""By queue and partition: an offset."""

_MAXIMUM = 2**60
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


class Log(Struct, frozen=True):
    """A database with a log: ``name`` is that of one of several, and empty of the only one."""

    name: str
    dsn: str
    snapshot: str | None = None


class ReadOptions(Struct, frozen=True, rename="camel"):
    """What is read, and how it is divided."""

    dsn: tuple[Log, ...]
    queue: tuple[str, ...] = ()
    queue_pattern: str | None = None
    partition: tuple[str, ...] = ()
    starting_offsets: int | Offsets = EARLIEST
    starting_timestamp: int | None = None
    ending_offsets: int | Offsets = LATEST
    ending_timestamp: int | None = None
    min_partitions: int = 1
    max_records_per_partition: int = 500_000
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    include_deleted: bool = False
    snapshot: tuple[str, ...] = ()
    encryption_keys: tuple[str, ...] = ()

    @property
    def logs(self) -> tuple[Log, ...]:
        """The databases, each with its snapshot if there are some."""
        snapshots = self.snapshot or (None,) * len(self.dsn)
        return tuple(replace(log, snapshot=snapshot) for log, snapshot in zip(self.dsn, snapshots, strict=True))


class GroupOptions(Struct, frozen=True, rename="camel"):
    """The consumer group that a stream reads as, and of which server."""

    url: str
    group: str
    queue: str
    token: str | None = None
    lease_seconds: int = 600
    max_offsets_per_trigger: int = 10_000
    timeout_seconds: int = 60
    fail_on_data_loss: bool = True


class WriteOptions(Struct, frozen=True, rename="camel"):
    """Where rows are written to, and how."""

    url: str | None = None
    dsn: str | None = None
    token: str | None = None
    queue: str | None = None
    partition: str | None = None
    write_id: str | None = None
    batch_size: int = 1_000
    timeout_seconds: int = 60


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text")
    return text


_A_DSN = (
    "a URL such as postgresql://user@host:5432/database, with @, / and other signs in a password as %40, %2F …, or "
    "NAME=URL of several databases"
)
_NAMED = re.compile(r"([a-z][a-z0-9-]*)=(postgres(?:ql)?://\S+)")


def logs_of(text: str) -> tuple[Log, ...]:
    """The database of a URL, or several: NAME=URL of each with spaces between them, as in DATABASE_URLS.

    Raises:
        ValueError: it is neither.
    """
    if not _NAMED.match(text.strip()):
        return (Log("", _text(text)),)
    found = [_NAMED.fullmatch(word) for word in text.split()]
    logs = {match[1]: Log(match[1], match[2]) for match in found if match}
    if len(logs) < len(found):
        raise ValueError("a URL, or NAME=URL of several databases, with different names and spaces between them")
    return tuple(logs.values())


_TOKEN = re.compile(r"[!-~]+")
# User and password, then hosts with their ports: what asyncpg does not understand, it repeats in its error.
_HOST = r"(?:\[[0-9a-fA-F:.%]+\]|[^\s:,@/?#\[\]]*)(?::\d+)?"
_DSN = re.compile(rf"postgres(?:ql)?://(?:[^\s@/?#]*@)?{_HOST}(?:,{_HOST})*(?:[/?]\S*)?")


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError("a token: it is empty, or has a space, a line end or a character that is not ASCII")
    return text


def _dsn(text: str) -> str:
    for log in logs_of(text):
        if not _DSN.fullmatch(log.dsn):
            raise ValueError(_A_DSN)
    return text


def _logs(text: str) -> tuple[Log, ...]:
    return logs_of(_dsn(text))


def _words(text: str) -> tuple[str, ...]:
    return tuple(_text(text).split())


def _names(text: str) -> tuple[str, ...]:
    """One name, or a JSON array of names."""
    if not text.startswith("["):
        return (_text(text),)
    try:
        names = msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        names = ()
    if not names or not all(names):
        raise ValueError('a name, or a JSON array of names such as ["a", "b"]')
    return names


def _one_name(text: str) -> str:
    if text.startswith("["):
        raise ValueError("one name: a consumer group reads one queue")
    return _text(text)


def _pattern(text: str) -> str:
    try:
        re.compile(_text(text))
    except re.error as problem:
        raise ValueError(f"a regular expression ({problem})") from None
    return text


def _offsets(text: str) -> int | Offsets:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        offsets = msgspec.json.decode(text, type=Offsets)
    except msgspec.DecodeError as problem:
        raise ValueError(f"{_SHAPE} ({problem})") from None
    if not all(EARLIEST <= each < _MAXIMUM for of_queue in offsets.values() for each in of_queue.values()):
        raise ValueError(f"{_SHAPE} (an offset is out of range)")
    return offsets


_SHAPE = (
    'earliest, latest, or JSON such as {"orders": {"alice": 23, "bob": -2}}, where -2 is the earliest and -1 the '
    "latest offset"
)


def _time(text: str) -> int:
    """Microseconds since 1970, of milliseconds as in Spark's Kafka source or of ISO 8601."""
    if re.fullmatch(r"\d{8}", text):
        raise ValueError(
            "clear, a day or milliseconds: write a day as 2026-11-28, and milliseconds with a zero before them"
        )
    if re.fullmatch(r"\d{1,14}", text):
        return int(text) * 1000
    try:
        return micros(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ValueError("milliseconds since 1970, or a time such as 2026-11-25T08:00:00Z") from None


def micros(time: datetime) -> int:
    """Microseconds since 1970; UTC if the time has no zone."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text) or not int(text):
        raise ValueError("a whole number from 1 on")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return text.lower() == "true"


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(","))
    if not all(re.fullmatch(r"[0-9a-fA-F]{64}", key) for key in keys):
        raise ValueError("keys of 64 hexadecimal digits, with commas between them")
    return keys


_Parsers = Mapping[str, Callable[[str], Any]]

_LOG: _Parsers = {
    "dsn": _logs, "queue": _names, "queuePattern": _pattern, "partition": _names,
    "startingOffsets": _offsets, "startingTimestamp": _time,
    "minPartitions": _count, "maxRecordsPerPartition": _count,
    "failOnDataLoss": _switch, "includeDeleted": _switch, "encryptionKeys": _keys,
}  # fmt: skip
_OF_A_BATCH: _Parsers = {"endingOffsets": _offsets, "endingTimestamp": _time, "snapshot": _words}
_OF_A_STREAM: _Parsers = {"maxOffsetsPerTrigger": _count}
_HTTP_URL = re.compile(r"https?://[^/\s]+/?")


def _url(text: str) -> str:
    if not _HTTP_URL.fullmatch(text):
        raise ValueError("the address of a server, such as http://localhost:6632")
    return text.rstrip("/")


_SINK: _Parsers = {
    "url": _url, "dsn": _dsn, "token": _token, "queue": _text, "partition": _text, "writeId": _text,
    "batchSize": _count, "timeoutSeconds": _count,
}  # fmt: skip

_GROUP: _Parsers = {
    "url": _url, "group": _text, "queue": _one_name, "token": _token, "leaseSeconds": _count,
    "maxOffsetsPerTrigger": _count, "timeoutSeconds": _count, "failOnDataLoss": _switch,
}  # fmt: skip

BATCH: _Parsers = {**_LOG, **_OF_A_BATCH}
STREAM: _Parsers = {**_LOG, **_OF_A_STREAM}
READ: _Parsers = {**BATCH, **STREAM}
_ALL = {"a batch read": BATCH, "a stream": STREAM, "a write": _SINK, "a stream of a group": _GROUP}
#: Their values are in no error.
_SECRET = frozenset({"dsn", "token", "encryptionKeys", "url"})
#: Spark hands these of its own to a sink.
_SPARKS = {"checkpointlocation", "queryname"}


def read_options(given: Mapping[str, str], known: _Parsers = READ) -> ReadOptions:
    """The options of a read.

    Raises:
        OptionError: one is unknown, wrong, or missing.
    """
    _not_of_a_server(given)
    parsed = _parsed(given, known)
    if "dsn" not in parsed:
        raise OptionError(
            "the option dsn is missing: where PostgreSQL has the log, such as postgresql://user@host:5432/database"
        )
    if "snapshot" in parsed and len(parsed["snapshot"]) != len(parsed["dsn"]):
        raise OptionError("snapshot: give one for each database of dsn, in their order, with spaces between them")
    for one, other in (
        ("queue", "queuePattern"), ("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp"),
    ):  # fmt: skip
        if one in parsed and other in parsed:
            raise OptionError(f"give {one} or {other}, not both")
    if parsed.get("startingOffsets") == LATEST and known is BATCH:
        raise OptionError("startingOffsets=latest: a batch read would find nothing")
    if parsed.get("endingOffsets") == EARLIEST:
        raise OptionError("endingOffsets=earliest: a batch read would find nothing")
    if known is STREAM:
        parsed.setdefault("startingOffsets", LATEST)
    return msgspec.convert(parsed, ReadOptions)


def _not_of_a_server(given: Mapping[str, str]) -> None:
    if "url" in {name.lower() for name in given}:
        raise OptionError("the option url is of a read with group, or of a write: give dsn to read the log, or group")


def of_group(given: Mapping[str, str]) -> bool:
    """Whether a read is one of a consumer group."""
    return "group" in {name.lower() for name in given}


def group_options(given: Mapping[str, str]) -> GroupOptions:
    """The options of a stream that reads as a consumer group.

    Raises:
        OptionError: one is unknown, wrong, or missing.
    """
    parsed = _parsed(given, _GROUP)
    for name, what in (("url", "of a server, such as http://localhost:6632"), ("queue", "one name")):
        if name not in parsed:
            raise OptionError(f"the option {name} is missing, which a consumer group needs: {what}")
    return msgspec.convert(parsed, GroupOptions)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write.

    Raises:
        OptionError: one is unknown, wrong, or missing.
    """
    parsed = _parsed({name: text for name, text in given.items() if name.lower() not in _SPARKS}, _SINK)
    if ("url" in parsed) == ("dsn" in parsed):
        raise OptionError(
            "give one of the options url (of a server, to push over HTTP) and dsn (of PostgreSQL, to push with SQL)"
        )
    if "dsn" in parsed and logs_of(parsed["dsn"])[0].name:
        raise OptionError("dsn: name one database, into which SQL pushes, or give url: the server finds the databases")
    for name in ("token", "timeoutSeconds"):
        if name in parsed and "dsn" in parsed:
            raise OptionError(f"the option {name} is for url, not for dsn")
    return msgspec.convert(parsed, WriteOptions)


def _parsed(given: Mapping[str, str], known: _Parsers) -> dict[str, Any]:
    names = {name.lower(): name for name in known}
    parsed = {}
    for key, text in given.items():
        name = names.get(key.lower())
        if name is None:
            raise OptionError(_unknown(key, known))
        try:
            parsed[name] = known[name](text)
        except ValueError as problem:
            shown = name if name in _SECRET else f"{name}={text!r}"
            raise OptionError(f"{shown}: not {problem}") from None
    return parsed


def _unknown(key: str, known: _Parsers) -> str:
    for purpose, others in _ALL.items():
        if found := next((name for name in others if name.lower() == key.lower()), None):
            return f"the option {found} is of {purpose}, and has no effect here: omit it"
    return f"there is no option {key}{nearest(key, known)}"


def nearest(word: str, known: Mapping[str, object]) -> str:
    """A guess of what was meant, or what there is."""
    lower = {name.lower(): name for name in known}
    if found := get_close_matches(word.lower(), lower, 1):
        return f": is {lower[found[0]]} meant?"
    return f". There are {', '.join(sorted(known)[:20])}" if known else ""
