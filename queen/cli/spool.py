"""``queen spool``: inspects the spool of this machine, and handles failed files. Needs neither server nor database."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client.asking import confirm
from queen.cli.client.options import Yes
from queen.cli.client.showing import document
from queen.cli.errors import FailedError
from queen.cli.output import Json, err, even_unread, out
from queen.config import Settings, from_environment
from queen.core.errors import QueenError
from queen.log.segment import Entry, decode_entries, encode_ends
from queen.main import open_spool
from queen.spool import place
from queen.spool.format import Damage, Record, SpooledBatch, SpoolFile, request_of
from queen.spool.spool import Spool, is_failed, is_held_back

spool = typer.Typer(name="spool", help="Inspect the spool, and retry or discard failed files.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(help="Folder of the spool.", show_default="FILE_BUFFER_DIR, else those in QUEEN_DATA_DIR/buffers"),
]
Names = Annotated[list[str], typer.Argument(help="Names of files, from `queen spool list`.")]

_PAYLOAD_CHARS = 200
_TITLES = ("file", "state", "requests", "messages", "bytes", "begun", "reason")
_LINE = "{:<24}  {:<13}  {:>8}  {:>8}  {:>10}  {:<25}  {}"


class Row(Struct, frozen=True):
    """A file; a number is empty if the file cannot be read."""

    file: str
    state: str
    requests: int | str = ""
    messages: int | str = ""
    bytes: int | str = ""
    begun: str = ""
    reason: str = ""


class Held(Struct, frozen=True):
    """A partition that is held back."""

    queue: str
    partition: str
    since: str
    reason: str


class Listed(Struct, frozen=True, rename="camel"):
    """A spool."""

    folder: str
    spooling: bool
    failed: int
    files: list[Row]
    held_back: list[Held]


class Message(Struct, frozen=True, rename="camel"):
    """A message of a file, or the error where the file cannot be read."""

    queue: str = ""
    partition: str = ""
    transaction_id: str | None = None
    data: Raw = Raw(b"null")
    error: str = ""


@spool.callback()
def _spool() -> None:
    """Inspect the spool, and retry or discard failed files."""


@spool.command("list")
def list_(folder: Folder = None, json: Json = False) -> None:
    """List the files: waiting, being written, held back, failed; and partitions that are held back, with the reason.

    --json prints an array, with an object per spool.
    """
    found = [_listed(path, each) for path, each in _spools(folder)]
    if json:
        document(found)
        return
    for each in found:
        also = f", {len(each.held_back)} partitions held back" if each.held_back else ""
        out.print(f"{each.folder}: {'spooling' if each.spooling else 'idle'}, {each.failed} failed{also}", markup=False)
        if each.files:
            out.print(_LINE.format(*_TITLES), markup=False)
        for row in each.files:
            out.print(_LINE.format(*msgspec.structs.astuple(row)), markup=False)
        for held in each.held_back:
            out.print(f"held back: {held.queue} / {held.partition} since {held.since}: {held.reason}", markup=False)


def _listed(path: Path, each: Spool) -> Listed:
    state = each.state()
    rows = [row for name in _files(each) if (row := _row(each, name))]
    held = [
        Held(one.queue, one.partition, _time(one.since), one.reason)
        for one in sorted(each.held_back.values(), key=lambda one: one.since)
    ]
    return Listed(str(path), state.spooling, state.failed, rows, held)


@spool.command("show")
def show(
    names: Names,
    folder: Folder = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Messages to show per file.", min=1)] = 20,
    json: Json = False,
) -> None:
    """Print the messages of files.

    --json prints one line per message.
    """
    for name in names:
        found = _messages(_read(_holding(name, folder), name))
        for each in found[:limit]:
            if json:
                document(each)
            else:
                out.print(_line(each), markup=False)
        if len(found) > limit:
            err.print(f"… {len(found) - limit} more: --limit", style="dim", markup=False)


@spool.command("retry")
def retry(
    names: Annotated[list[str] | None, typer.Argument(help="Names of failed files.", show_default="all")] = None,
    folder: Folder = None,
) -> None:
    """Put failed files back into the spool, in order. A running server replays them at once, otherwise the next one.

    Pushes that are refused again are set aside again. A message whose transaction id is already stored is a duplicate.
    """
    if names:
        for name in sorted(_failed(names)):
            try:
                line = _put_back(_holding(name, folder), name)
            except OSError as problem:
                raise FailedError(f"{name} was left: {problem}") from None
            with even_unread():
                out.print(line, markup=False)
        return
    everything = True
    for path, each in _spools(folder):
        put_back = left = 0
        for name in each.failed_files():
            try:
                line = _put_back(each, name)
                put_back += 1
            except (QueenError, OSError) as problem:
                line = f"{name} was left: {problem}"
                left += 1
                everything = False
            with even_unread():
                out.print(line, markup=False)
        with even_unread():
            out.print(f"{path}: {put_back} files will be replayed, {left} were left", markup=False)
    if not everything:
        raise typer.Exit(1)


def _put_back(each: Spool, name: str) -> str:
    messages, reason = each.read(name).messages, each.told_of_failed(name).reason
    return f"{name} will be replayed as {each.replay_failed(name)}: {messages} messages; it was set aside: {reason}"


@spool.command("discard")
def discard(names: Names, folder: Folder = None, yes: Yes = False) -> None:
    """Delete failed files with their messages. This cannot be undone."""
    for name in _failed(names):
        each = _holding(name, folder)
        messages = _read(each, name).messages
        confirm(f"Discard {name} with {messages} messages? This cannot be undone.", yes=yes)
        each.discard(name)
        with even_unread():
            out.print(f"discarded {name} with {messages} messages", markup=False)


def _spools(folder: Path | None) -> list[tuple[Path, Spool]]:
    """The spools of this machine."""
    try:
        settings = from_environment()
        folders = paths(settings, folder)
        found = [(path, installation) for path in folders if (installation := place.installation_of(path))]
    except OSError as problem:
        raise FailedError(problem) from None
    if not found:
        raise FailedError(
            f"There is no spool in {_where(settings, folder)}: name its folder with --folder or FILE_BUFFER_DIR"
        )
    return [(path, open_spool(settings, path, installation)) for path, installation in found]


def _where(settings: Settings, folder: Path | None) -> Path:
    return folder or (
        Path(settings.spool.folder) if settings.spool.folder else place.default_parent(settings.server.data_dir)
    )


def paths(settings: Settings, folder: Path | None) -> Sequence[Path]:
    """The folders that may have a spool of this machine; of several databases each has one, of its name."""
    path = _where(settings, folder)
    if folder or (settings.spool.folder and not settings.database.shards):
        return [path]
    return sorted(path.iterdir()) if path.is_dir() else []


def _holding(name: str, folder: Path | None) -> Spool:
    """The spool that has a file with this name."""
    for _, each in _spools(folder):
        if name in _files(each):
            return each
    raise FailedError(f"There is no file {name} in the spool: `queen spool list` lists the files")


def _files(each: Spool) -> Sequence[str]:
    return (*each.held_files(), *each.files(), *each.failed_files())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _read(each: Spool, name: str) -> SpoolFile:
    try:
        return each.read(name)
    except OSError as problem:
        raise FailedError(f"{name} cannot be read: {problem.strerror}") from None


def _failed(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if not is_failed(name):
            raise FailedError(f"{name} is not a failed file: the server replays it by itself")
    return names


def _row(each: Spool, name: str) -> Row | None:
    """The row of a file; ``None`` if a server has replayed and removed it meanwhile."""
    state = "failed" if is_failed(name) else "held back" if is_held_back(name) else "waiting"
    try:
        file, size = each.read(name), each.size(name)
    except FileNotFoundError:
        return None
    except OSError as problem:
        return Row(name, state, reason=f"cannot be read: {problem.strerror}")
    state = "being written" if name.endswith(".tmp") else state
    reasons = [each.reason if isinstance(each, Record) else "cannot be read" for each in file.records]
    time = _time(file.header.created_at) if file.header else ""
    return Row(name, state, file.requests, file.messages, size, time, next((each for each in reasons if each), ""))


def _messages(file: SpoolFile) -> list[Message]:
    """The messages of a file, and what of it cannot be read."""
    found = []
    for record in file.records:
        if isinstance(record, Damage):
            found.append(Message(error=f"{record.end - record.start} bytes that cannot be read"))
            continue
        for batches in record.requests:
            for batch in batches:
                found += _entries(batch)
    return found


def _entries(batch: SpooledBatch) -> list[Message]:
    if batch.kind:
        messages = msgspec.json.decode(b"[" + batch.body + b"]", type=list[Raw])
        return [
            Message(batch.queue, batch.partition, each, data)
            for each, data in zip(batch.ids or (), messages, strict=True)
        ]
    [whole] = request_of([batch]).batches
    found = []
    for entry in decode_entries(b"[" + whole.body + b"]", encode_ends(whole.lengths), 0):
        payload = entry.payload if isinstance(entry, Entry) else entry
        chosen = msgspec.json.decode(entry.transactionId) if isinstance(entry, Entry) and entry.transactionId else None
        found.append(Message(batch.queue, batch.partition, chosen, Raw(bytes(payload))))
    return found


def _line(message: Message) -> str:
    if message.error:
        return message.error
    payload = bytes(message.data).decode()
    cut = payload if len(payload) <= _PAYLOAD_CHARS else payload[:_PAYLOAD_CHARS] + "…"
    return f"{message.queue} / {message.partition}: {message.transaction_id or '-'} {cut}"
