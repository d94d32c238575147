"""Journals as files: Parquet, or JSON lines as agents write them while they run.

A file of JSON lines may end in the middle of a line: its agent was killed, and what it did not get to write is
unknown. Any other line that cannot be read, and a Parquet file without its footer, is an error, because what it held
would silently be missing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..columns import arrow_schema, arrow_table
from ..errors import JournalError
from .schema import VERSION, Call

_CHUNK = 50_000
decode_line = msgspec.json.Decoder(Call).decode
"""The row of one line; raises ``msgspec.DecodeError``."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Journal:
    """The files of a folder; ``torn`` are those of which a last, half-written line was left out."""

    parquet: tuple[Path, ...]
    torn: tuple[Path, ...] = ()

    def items(self) -> int:
        """About how many messages all calls carry; a list without any counts as one."""
        return sum(_items(pq.read_metadata(path)) for path in self.parquet)


def to_line(call: Call) -> bytes:
    """A row as one line of JSON, with the line break."""
    return _encode(call) + b"\n"


def write_lines(path: Path, calls: Iterable[Call]) -> None:
    """Writes a journal as JSON lines."""
    with path.open("wb") as file:
        file.writelines(map(to_line, calls))


def write_parquet(path: Path, calls: Iterable[Call]) -> None:
    """Writes a journal as Parquet; the file gets its name when it is complete."""
    schema = arrow_schema(Call)
    half = path.with_suffix(".half")
    rows = iter(calls)
    with pq.ParquetWriter(half, schema, compression="zstd") as writer:
        while chunk := list(islice(rows, _CHUNK)):
            writer.write_table(arrow_table(Call, chunk))
    half.rename(path)


def read_lines(path: Path) -> Iterator[Call]:
    """The rows of a file of JSON lines; a last line without a line break is left out if it cannot be read.

    Raises:
        JournalError: a line is no row; names file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                call = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(
                    f"{path}, line {number}: {problem}. Remove the line if its loss is acceptable (its agent then "
                    "counts as cut short), or write the file again; docs/journal.md has the schema"
                ) from problem
            if call.version != VERSION:
                raise JournalError(_version_text(path, {call.version}))
            yield call


def _version_text(path: Path, versions: Iterable[int]) -> str:
    return (
        f"{path}: the journal has schema version {sorted(versions)}, and this program reads {VERSION}. "
        "Audit it with the release that its agents had"
    )


def is_torn(path: Path) -> bool:
    """Whether a file of JSON lines ends in the middle of one."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def open_journal(folder: Path, work: Path) -> Journal:
    """Looks at every file of a folder; those of JSON lines are converted into ``work``.

    Raises:
        JournalError: there is none, or one cannot be read.
    """
    if not folder.is_dir():
        raise JournalError(f"{folder} is no folder. --journal names the folder that holds the files of the agents")
    parquet = sorted(folder.rglob("*.parquet"))
    lines = sorted(folder.rglob("*.jsonl"))
    if not parquet and not lines:
        raise JournalError(
            f"{folder}: no journal here. Expected are files *.parquet or *.jsonl as docs/journal.md describes them"
        )
    for path in parquet:
        _look_at(path)
    converted = []
    for number, path in enumerate(lines):
        converted.append(work / f"{number:06}.parquet")
        write_parquet(converted[-1], read_lines(path))
    return Journal((*parquet, *converted), tuple(path for path in lines if is_torn(path)))


def _look_at(path: Path) -> None:
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(
            f"{path} is not complete: {problem}. Its writer was probably killed: remove it (its agent then counts as "
            "cut short), or use the JSON lines of the agent if there are any"
        ) from problem
    wanted = arrow_schema(Call)
    there = {field.name: field.type for field in found}
    wrong = [
        f"{field.name} is {there.get(field.name, 'missing')} instead of {field.type}"
        for field in wanted
        if field.name not in there or not _same(there[field.name], field.type)
    ]
    if wrong:
        raise JournalError(f"{path} has another schema: {'; '.join(wrong)}. docs/journal.md has the schema")
    bounds = pq.ParquetFile(path).metadata
    versions = {
        value
        for group in range(bounds.num_row_groups)
        if (statistics := bounds.row_group(group).column(_leaf(bounds, "version")).statistics)
        for value in (statistics.min, statistics.max)
    }
    if versions - {VERSION}:
        raise JournalError(_version_text(path, versions))


def _items(metadata: pq.FileMetaData) -> int:
    lists = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path.endswith(".queue")]
    groups = range(metadata.num_row_groups)
    return sum(metadata.row_group(group).column(number).num_values for group in groups for number in lists)


def _leaf(metadata: pq.FileMetaData, name: str) -> int:
    """The number of a column of simple values among all that the file stores."""
    return next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == name)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types agree but for the names that writers give to the elements of lists."""
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found) and _same(found.value_type, wanted.value_type))
    if pa.types.is_struct(wanted):
        there = {field.name: field.type for field in found} if pa.types.is_struct(found) else {}
        return all(field.name in there and _same(there[field.name], field.type) for field in wanted)
    return bool(found == wanted)
