"""``queen spool``: inspects the spool of this machine, and handles failed files. Needs neither server nor database."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from queen.cli.output import even_unread, fail, out
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
Names = Annotated[list[str], typer.Argument(help="Names of files, from `queen spool ls`.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command only says what it would do.")]

_PAYLOAD_CHARS = 200
_TITLES = ("file", "state", "requests", "messages", "bytes", "begun", "reason")
_LINE = "{:<24}  {:<13}  {:>8}  {:>8}  {:>10}  {:<25}  {}"


@spool.callback()
def _spool() -> None:
    """Inspect the spool, and retry or discard failed files."""


@spool.command("ls")
def ls(folder: Folder = None) -> None:
    """List the files: waiting, being written, held back, failed; and partitions that are held back, with the reason."""
    for path, each in _spools(folder):
        state = each.state()
        also = f", {state.held_partitions} partitions held back" if state.held_partitions else ""
        out.print(f"{path}: {'spooling' if state.spooling else 'idle'}, {state.failed} failed{also}", markup=False)
        rows = [row for name in _files(each) if (row := _row(each, name))]
        if rows:
            out.print(_LINE.format(*_TITLES), markup=False)
        for row in rows:
            out.print(_LINE.format(*row), markup=False)
        for held in sorted(each.held_back.values(), key=lambda each: each.since):
            out.print(
                f"held back: {held.queue} / {held.partition} since {_time(held.since)}: {held.reason}", markup=False
            )


@spool.command("show")
def show(
    names: Names,
    folder: Folder = None,
    limit: Annotated[int, typer.Option(help="Messages to show per file.", min=1)] = 20,
) -> None:
    """Print the messages of files."""
    for name in names:
        file = _read(_holding(name, folder), name)
        lines = _messages(file)
        for text in lines[:limit]:
            out.print(text, markup=False)
        if len(lines) > limit:
            out.print(f"… {len(lines) - limit} more", markup=False)


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
            except (QueenError, OSError) as problem:
                fail(problem)
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


@spool.command("replay", hidden=True)
def replay(names: Names, folder: Folder = None, yes: Yes = False) -> None:
    """Like `retry`, but needs --yes."""
    for name in _failed(names):
        each = _holding(name, folder)
        file = _read(each, name)
        if file.header is None:
            fail(f"{name} cannot be read, so it cannot be replayed: inspect it, then discard it")
        if not yes:
            out.print(f"would replay {name}: {file.messages} messages (use --yes to do it)", markup=False)
            continue
        try:
            line = _put_back(each, name)
        except (QueenError, OSError) as problem:
            fail(problem)
        with even_unread():
            out.print(line, markup=False)


def _put_back(each: Spool, name: str) -> str:
    messages, reason = each.read(name).messages, each.told_of_failed(name).reason
    return f"{name} will be replayed as {each.replay_failed(name)}: {messages} messages; it was set aside: {reason}"


@spool.command("discard")
def discard(names: Names, folder: Folder = None, yes: Yes = False) -> None:
    """Delete failed files with their messages. This cannot be undone."""
    for name in _failed(names):
        each = _holding(name, folder)
        messages = _read(each, name).messages
        if not yes:
            out.print(f"would discard {name} with {messages} messages (use --yes to do it)", markup=False)
            continue
        each.discard(name)
        with even_unread():
            out.print(f"discarded {name} with {messages} messages", markup=False)


def _spools(folder: Path | None) -> list[tuple[Path, Spool]]:
    """The spools of this machine."""
    try:
        settings = from_environment()
        folders = paths(settings, folder)
        found = [(path, installation) for path in folders if (installation := place.installation_of(path))]
    except (QueenError, OSError) as problem:
        fail(problem)
    if not found:
        fail(f"There is no spool in {_where(settings, folder)}: name its folder with --folder or FILE_BUFFER_DIR")
    return [(path, open_spool(settings, path, installation)) for path, installation in found]


def _where(settings: Settings, folder: Path | None) -> Path:
    return folder or (
        Path(settings.spool.folder) if settings.spool.folder else place.default_parent(settings.server.data_dir)
    )


def paths(settings: Settings, folder: Path | None) -> Sequence[Path]:
    """The folders that may have a spool of this machine."""
    path = _where(settings, folder)
    if folder or settings.spool.folder:
        return [path]
    return sorted(path.iterdir()) if path.is_dir() else []


def _holding(name: str, folder: Path | None) -> Spool:
    """The spool that has a file with this name."""
    for _, each in _spools(folder):
        if name in _files(each):
            return each
    return fail(f"There is no file {name} in the spool: `queen spool ls` lists the files")


def _files(each: Spool) -> Sequence[str]:
    return (*each.held_files(), *each.files(), *each.failed_files())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _read(each: Spool, name: str) -> SpoolFile:
    try:
        return each.read(name)
    except OSError as problem:
        return fail(f"{name} cannot be read: {problem.strerror}")


def _failed(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if not is_failed(name):
            fail(f"{name} is not a failed file: the server replays it by itself")
    return names


def _row(each: Spool, name: str) -> list[str] | None:
    """The row of a file; ``None`` if a server has replayed and removed it meanwhile."""
    try:
        file, size = each.read(name), each.size(name)
    except FileNotFoundError:
        return None
    except OSError as problem:
        return [name, "failed" if is_failed(name) else "waiting", "", "", "", "", f"cannot be read: {problem.strerror}"]
    state = "failed" if is_failed(name) else "held back" if is_held_back(name) else "waiting"
    state = "being written" if name.endswith(".tmp") else state
    reasons = [each.reason if isinstance(each, Record) else "cannot be read" for each in file.records]
    time = _time(file.header.created_at) if file.header else ""
    reason = next((reason for reason in reasons if reason), "")
    return [name, state, str(file.requests), str(file.messages), str(size), time, reason]


def _messages(file: SpoolFile) -> list[str]:
    """One line per message."""
    lines = []
    for record in file.records:
        if isinstance(record, Damage):
            lines.append(f"{record.end - record.start} bytes that cannot be read")
            continue
        for batches in record.requests:
            for batch in batches:
                lines += [f"{batch.queue} / {batch.partition}: {text}" for text in _entries(batch)]
    return lines


def _entries(batch: SpooledBatch) -> list[str]:
    [whole] = request_of([batch]).batches
    texts = []
    for entry in decode_entries(b"[" + whole.body + b"]", encode_ends(whole.lengths), 0):
        payload = bytes(entry.payload if isinstance(entry, Entry) else entry).decode()
        chosen = msgspec.json.decode(entry.transactionId) if isinstance(entry, Entry) and entry.transactionId else "-"
        cut = payload if len(payload) <= _PAYLOAD_CHARS else payload[:_PAYLOAD_CHARS] + "…"
        texts.append(f"{chosen} {cut}")
    return texts
