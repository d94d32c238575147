"""``queen push``: pushes a message, or the messages of a file."""

import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.connection import Server
from queen.cli.client.options import Queue
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.errors import FailedError, UsageError
from queen.cli.output import Json, err, even_unread
from queen.cli.progress import bar

_BYTES_MAX = 4 << 20
_PIPE = "-"
_WORDS = {"queued": "queued", "duplicate": "already stored", "buffered": "buffered", "failed": "refused"}


class Message(Struct, omit_defaults=True):
    """An item of a push."""

    queue: str
    payload: Raw
    partition: str | UnsetType = UNSET
    transactionId: str | UnsetType = UNSET  # noqa: N815 - the interface's names
    traceId: str | UnsetType = UNSET  # noqa: N815
    headers: dict[str, str] | UnsetType = UNSET


#: Number, message and length of a line.
Numbered = tuple[int, Message, int]


class Line(Struct, forbid_unknown_fields=True):
    """A line of a file with ``--items``."""

    payload: Raw = Raw(b"null")
    partition: str | UnsetType = UNSET
    transactionId: str | UnsetType = UNSET  # noqa: N815 - the interface's names
    traceId: str | UnsetType = UNSET  # noqa: N815
    headers: dict[str, str] | UnsetType = UNSET


class Result(Struct):
    """The result of a message, with the fields that are shown."""

    status: str
    message_id: str | None = None
    error: str = ""


class Form(Struct, frozen=True):
    """The form of the lines, and the target of their messages."""

    queue: str
    partition: str | UnsetType
    text: bool
    items: bool

    def message(self, line: bytes) -> Message:
        """The message of a line; raises UsageError."""
        try:
            if self.items:
                item = msgspec.json.decode(line, type=Line)
                partition = item.partition if item.partition is not UNSET else self.partition
                return Message(self.queue, item.payload, partition, item.transactionId, item.traceId, item.headers)
            if self.text:
                return Message(self.queue, Raw(msgspec.json.encode(line.decode())), self.partition)
            msgspec.json.decode(line)
            return Message(self.queue, Raw(line), self.partition)
        except UnicodeDecodeError:
            raise UsageError("not UTF-8") from None
        except RecursionError:
            raise UsageError("nested too deeply") from None
        except msgspec.ValidationError as problem:
            raise UsageError(f"not an item: {problem}") from None
        except msgspec.DecodeError as problem:
            advice = "" if self.items else "; use --text to push it as text"
            raise UsageError(f"not JSON: {problem}{advice}") from None


@on_server
def push(
    server: Server,
    queue: Queue,
    payload: Annotated[
        str | None, typer.Argument(help="Payload as JSON, or - to read it from standard input.", show_default=False)
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", "-p", help="Partition; its messages stay in order.", show_default="Default"),
    ] = None,
    transaction_id: Annotated[
        str | None,
        typer.Option(
            "--transaction-id",
            help="Transaction id; stored once per partition, however often it is pushed.",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="A header, name=value; may be repeated.", show_default="none"),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Push each line of a file; - is standard input.", show_default=False),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Payload or lines are text, not JSON.")] = False,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="Lines are objects with payload, and optionally partition, transactionId, traceId and headers.",
        ),
    ] = False,
    batch: Annotated[int, typer.Option(help="Lines per request.", min=1, max=10_000)] = 1000,
    json: Json = False,
) -> None:
    """Push a message, or the messages of a file, one per line.

    --json prints the server's answer, one line per message.
    """
    form = Form(queue, UNSET if partition is None else partition, text, items)
    if (payload is None) == (file is None):
        raise UsageError("give either PAYLOAD (- reads it from standard input) or --file")
    if file is None:
        if items:
            raise UsageError("--items needs --file")
        message = _single(form, str(payload), transaction_id)
        _push_one(server, msgspec.structs.replace(message, headers=_headers(header or [])), json=json)
    elif transaction_id is not None:
        raise UsageError("--transaction-id is for a single message: with --file, use --items and give one per line")
    elif header:
        raise UsageError("--header is for a single message: with --file, use --items and give headers per line")
    else:
        _push_file(server, file, form, batch, json=json)


def _single(form: Form, payload: str, transaction_id: str | None) -> Message:
    # Undecodable bytes of the command line arrive as surrogates.
    given = sys.stdin.buffer.read() if payload == _PIPE else payload.encode(errors="surrogateescape")
    try:
        message = form.message(given)
    except UsageError as problem:
        raise UsageError(f"the payload is {problem}") from None
    return message if transaction_id is None else msgspec.structs.replace(message, transactionId=transaction_id)


def _headers(given: Sequence[str]) -> dict[str, str] | UnsetType:
    pairs = [text.partition("=") for text in given]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise UsageError(f"--header {name!r} has no name and value: write name=value")
    return {name: value for name, _, value in pairs} or UNSET


def _push_one(server: Server, message: Message, *, json: bool) -> None:
    [raw] = _send(server, [message])
    result = msgspec.json.decode(raw, type=Result)
    with even_unread():
        if json:
            showing.lines([raw])
        elif result.status == "buffered":
            showing.say("buffered: PostgreSQL is unavailable or push maintenance is on; the server stores it later")
        elif result.status != "failed":
            showing.say(f"{_WORDS.get(result.status, result.status)} as {result.message_id}")
    if result.status == "failed":
        raise FailedError(f"the message was refused: {clean(result.error)}")


class Reached(Struct):
    """The last line that is stored, and the lines so far by status."""

    line: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)


def _push_file(server: Server, name: str, form: Form, batch: int, *, json: bool) -> None:
    reached = Reached()
    with _telling(reached), _opened(name) as (source, size), bar() as progress:
        task = progress.add_task("pushing", total=size)
        for numbered in _batches(_messages(source, form), batch):
            raws = _send(server, [message for _, message, _ in numbered])
            results = [msgspec.json.decode(raw, type=Result) for raw in raws]
            reached.line = numbered[-1][0]
            with even_unread():
                _report(numbered, raws, results, json=json)
            reached.counts.update(result.status for result in results)
            progress.update(task, advance=sum(length for _, _, length in numbered))
    counts = reached.counts
    if not json:
        said = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status])
        with even_unread():
            showing.say(said or "nothing to push")
    if counts["failed"]:
        raise FailedError(f"{counted(counts['failed'], 'message')} of {name} refused")


def _report(numbered: Sequence[Numbered], raws: Sequence[Raw], results: Sequence[Result], *, json: bool) -> None:
    """Prints the refused lines, and with --json all answers."""
    for (number, _, _), result in zip(numbered, results, strict=True):
        if result.status == "failed":
            err.print(f"line {number}: {clean(result.error)}", style="red", markup=False)
    if json:
        showing.lines(raws)


@contextmanager
def _telling(reached: Reached) -> Iterator[None]:
    """An error in the block tells how many lines are stored."""
    try:
        yield
    except FailedError as problem:
        if reached.line:
            problem.args = (f"{problem}. {_so_far(reached.line)}",)
        raise
    except (KeyboardInterrupt, OSError):
        if reached.line:
            err.print(_so_far(reached.line))
        raise


def _so_far(line: int) -> str:
    return f"Lines up to {line} are stored"


def _send(server: Server, messages: Sequence[Message]) -> list[Raw]:
    return server.post(list[Raw], "/api/v1/push", {"items": messages})


def _size(file: BinaryIO) -> int | None:
    """The size of a file; a pipe has none."""
    try:
        found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _opened(name: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file and its size, if it has one."""
    if name == _PIPE:
        yield sys.stdin.buffer, _size(sys.stdin.buffer)
        return
    path = Path(name)
    try:
        file = path.open("rb")
    except OSError as problem:
        raise UsageError(f"{name} cannot be read: {problem.strerror}") from None
    with file:
        yield file, _size(file)


def _messages(source: Iterable[bytes], form: Form) -> Iterator[Numbered]:
    """Number, message and length of each line that is not empty."""
    for number, line in enumerate(source, 1):
        if stripped := line.strip(b"\r\n"):
            try:
                yield number, form.message(stripped), len(line)
            except UsageError as problem:
                raise UsageError(f"line {number} is {problem}") from None


def _batches(messages: Iterator[Numbered], most: int) -> Iterator[list[Numbered]]:
    """Batches of lines, one per request: limited in messages, and in bytes by what a server accepts."""
    gathered: list[Numbered] = []
    size = 0
    for each in messages:
        if gathered and (len(gathered) == most or size + each[2] > _BYTES_MAX):
            yield gathered
            gathered, size = [], 0
        gathered.append(each)
        size += each[2]
    if gathered:
        yield gathered
