"""Files of journals: Parquet, or JSON lines, which agents write while they run.

A file of JSON lines may end in the middle of a line: its agent was killed, and later calls are unknown. Any other line
that cannot be read, and a Parquet file without its footer, is an error, because its calls would silently be missing. So
is a file that looks like a journal but has neither format.

A file that was set aside (``*.lost``), is not finished (``*.half``), or has no rows represents an agent with unknown
calls: it counts as cut short from the beginning.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_queen.batches import batches

from ..columns import Column, arrow_schema, arrow_table, leaf_columns
from ..errors import JournalError
from .changes import read_changes
from .schema import SECONDS_MAX, VERSION, WHOLE_MAX, Call, Kind, Outcome, to_line

WORK = "queen-audit-"
"""Prefix of the folders with the data of audits."""

_MESSAGES_AT_ONCE = 200_000
_ROWS_AT_ONCE = 20_000
_WORDS = {"kind": get_args(Kind), "outcome": get_args(Outcome)}
_SCHEMA = "docs/journal.md has the schema"
_DAMAGED = (
    "Use the JSON lines of the agent if there are any, or rename it to {}.lost (its agent then counts as "
    "cut short from the beginning)"
)
_NOT_FINISHED = ".half"
_SERVER_LOG = ".log"
_LOST = (".lost", _NOT_FINISHED)
_FOR_PATTERNS = "*?[]{}\\:"
decode_line = msgspec.json.Decoder(Call).decode
"""The row of one line; raises ``msgspec.DecodeError``."""


@dataclass(frozen=True)
class Journal:
    """The files of a folder as Parquet; ``torn`` are those whose incomplete last line was ignored."""

    parquet: tuple[Path, ...]
    torn: tuple[Path, ...] = ()

    def items(self) -> int:
        """The approximate number of messages of all calls; an empty list counts as one."""
        return sum(_items(pq.read_metadata(path)) for path in self.parquet)


def write_lines(path: Path, calls: Iterable[Call]) -> None:
    """Writes a journal as JSON lines."""
    with path.open("wb") as file:
        file.writelines(map(to_line, calls))


def write_parquet(path: Path, calls: Iterable[Call]) -> None:
    """Writes a journal as Parquet; the file gets its final name when it is complete."""
    schema = arrow_schema(Call)
    half = path.with_suffix(_NOT_FINISHED)
    with pq.ParquetWriter(half, schema, compression="zstd") as writer:
        for batch in batches(calls, _messages_of, _MESSAGES_AT_ONCE):
            writer.write_table(arrow_table(Call, batch))
    half.rename(path)


def _messages_of(call: Call) -> int:
    """The weight of a row, in items: 50,000 calls may have 50 million."""
    return 1 + len(call.pushes) + len(call.deliveries) + len(call.acks)


def read_lines(path: Path) -> Iterator[Call]:
    """The rows of a file of JSON lines; a last line without a line break is ignored if it cannot be read.

    Raises:
        JournalError: a line is not a row; the text names file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                call = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                if not line.endswith(b"\n"):
                    return
                advice = (
                    "Remove the line if its loss is acceptable (its agent then counts as cut short), or write the file "
                    "again"
                )
                if number == 1:
                    advice = "This file is no journal: move it out of the folder, or write it again"
                raise JournalError(f"{path}, line {number}: {problem}. {advice}; {_SCHEMA}") from problem
            if call.version != VERSION:
                raise JournalError(_version_text(path, {call.version}))
            yield call


def _version_text(path: Path, versions: Iterable[int]) -> str:
    return (
        f"{path}: the journal has schema version {sorted(versions)}, but this program reads {VERSION}. Audit "
        "it with the release of its agents"
    )


def is_torn(path: Path) -> bool:
    """Whether a file of JSON lines ends in the middle of one."""
    with path.open("rb") as file:
        return any(not line.endswith(b"\n") and not _is_row(line) for line in deque(file, 1))


def _is_row(line: bytes) -> bool:
    try:
        decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def open_journal(folder: Path, work: Path) -> Journal:
    """Checks every file of a folder; converts those of JSON lines into ``work``.

    Raises:
        JournalError: there is none, or one cannot be read.
    """
    if not folder.is_dir():
        raise JournalError(f"{folder} is not a folder. --journal names the folder with the files of the agents")
    files = files_of(folder)
    parquet, lines, lost = (_ending(files, *suffixes) for suffixes in ((".parquet",), (".jsonl",), _LOST))
    known = {*parquet, *lines, *lost}
    for path in files:
        if path not in known:
            _refuse_journal(path)
    if not known:
        raise JournalError(
            f"{folder}: no journal here. Expected are files *.parquet or *.jsonl in the form of docs/journal.md"
        )
    for path in parquet:
        _look_at(path)
    converted = _converted(lines, work)
    lost += [path for path in (*lines, *parquet) if not pq.read_metadata(converted.get(path, path)).num_rows]
    made = [*converted.values(), *_ends_of(folder, lost, work), *_changes_in(folder, files, work)]
    return Journal((*parquet, *made), tuple(path for path in lines if is_torn(path)))


def _ending(files: list[Path], *suffixes: str) -> list[Path]:
    return [path for path in files if path.suffix in suffixes]


def _converted(lines: list[Path], work: Path) -> dict[Path, Path]:
    """Files of JSON lines, and as Parquet."""
    converted = {path: work / f"{number:06}.converted" for number, path in enumerate(lines)}
    for path, place in converted.items():
        write_parquet(place, read_lines(path))
    return converted


def _ends_of(folder: Path, lost: list[Path], work: Path) -> Iterator[Path]:
    """A row for each agent whose calls are unknown, with a gap before it: rows are missing from the beginning."""
    if lost:
        ends = (Call(run="", agent=text_of(path.relative_to(folder)), number=1, kind="end", sent=0) for path in lost)
        write_parquet(work / "lost.parquet", ends)
        yield work / "lost.parquet"


def _changes_in(folder: Path, files: list[Path], work: Path) -> Iterator[Path]:
    """What logs of servers say that operators did."""
    for number, path in enumerate(_ending(files, _SERVER_LOG)):
        if told := [*read_changes(path, f"changes in {text_of(path.relative_to(folder))}")]:
            place = work / f"{number:06}.changes"
            write_parquet(place, told)
            yield place


def text_of(path: Path) -> str:
    """A path as text for people; it may not be UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def files_of(folder: Path) -> list[Path]:
    """The files of agents in a folder, in order, without those of a running or killed audit.

    Raises:
        JournalError: a file is inaccessible; without it, an audit would report its messages as lost.
    """
    found: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [each for each in folders if not each.startswith(WORK)] if real not in seen else []
        if real not in seen:
            found += [path for name in names if _is_file(path := Path(place, name)) and not _is_bench_result(path)]
        seen.add(real)
    return sorted(found)


def _is_bench_result(path: Path) -> bool:
    """Whether the file is the list of results that `queen bench load` writes beside its journals."""
    if path.name != "results.jsonl":
        return False
    with path.open("rb") as file:
        try:
            return {"scenario", "session"} <= msgspec.json.decode(file.readline(), type=dict[str, object]).keys()
        except msgspec.DecodeError:
            return False


def _is_file(path: Path) -> bool:
    if path.is_symlink() and not path.exists():
        raise JournalError(
            f"{path} is a link to {path.readlink()}, which does not exist: remove it, or mount its target"
        )
    return path.is_file()


def _refuse_folder(problem: OSError) -> None:
    raise JournalError(f"{problem.filename} cannot be listed: {problem.strerror}") from problem


def _refuse_journal(path: Path) -> None:
    """Refuses a file that would not be read, if it looks like a journal."""
    name = path.name.lower()
    if name.endswith((".crc", ".tmp")):
        return
    if ".jsonl" in name or ".parquet" in name:
        raise JournalError(
            f"{path} would be ignored: files of journals end in .parquet or .jsonl. Unpack or rename it; if "
            "you append .lost to its name, its agent counts as cut short from the beginning"
        )
    if name.endswith((".ndjson", ".json")):
        with path.open("rb") as file:
            if _is_row(file.readline()):
                raise JournalError(f"{path} has rows of a journal, but would be ignored: rename it to *.jsonl")


def _name_for_spark(path: Path) -> None:
    """Refuses names that Spark ignores as hidden, or takes for patterns."""
    whole = str(path.absolute())
    foreign = text_of(path.absolute()) != whole
    if foreign or path.name.startswith((".", "_")) or any(each in whole for each in _FOR_PATTERNS):
        raise JournalError(
            f"{text_of(path)} cannot be read by Spark: rename it so that its name begins with a letter or a "
            f"digit, and neither it nor its folders contain {_FOR_PATTERNS}, or bytes that are not UTF-8"
        )


def _look_at(path: Path) -> None:
    _name_for_spark(path)
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError) as problem:
        raise JournalError(
            f"{path} is incomplete: {problem}. Its writer was probably killed. {_DAMAGED.format(path.name)}"
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
    _check_rows(path, pq.read_metadata(path))


def _check_rows(path: Path, metadata: pq.FileMetaData) -> None:
    """Checks that every value conforms to the schema: audits would ignore a row with another one."""
    # Optional texts can be anything, and are not checked.
    looked_at = {each.place: each for each in leaf_columns(Call) if each.required or each.type in (int, float)}
    leaves = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    names = [leaf for leaf in leaves if _place(leaf) in looked_at]
    try:
        # Not read as dictionaries, which would be faster, because pyarrow cannot do that for lists if a batch has rows
        # of two row groups.
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=names, batch_size=_rows_at_once(metadata)):
                # Rows of another version may have any values.
                for place, values in sorted(_values(batch), key=lambda each: each[0] != ("version",)):
                    if column := looked_at.get(place):
                        _check_values(path, column, values)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        reason = " ".join(str(problem).split()).rstrip(".")
        raise JournalError(f"{path} cannot be read: {reason}. {_DAMAGED.format(path.name)}") from problem


def _check_values(path: Path, column: Column, values: pa.Array) -> None:
    name = ".".join(column.place)
    if column.required and values.null_count:
        raise JournalError(f"{path}: {name} is null in a row. {_SCHEMA}")
    if known := _WORDS.get(column.place[-1]):
        strange = [value for value in pc.unique(values).to_pylist() if value not in known]
        if strange:
            raise JournalError(
                f"{path}: {strange[0]!r} is not a valid {column.place[-1]}. Valid are {', '.join(known)}. {_SCHEMA}"
            )
    if column.type in (int, float) and values.null_count < len(values):
        _check_numbers(path, name, values, WHOLE_MAX if column.type is int else SECONDS_MAX)
    if column.place == ("version",) and (others := set(pc.unique(values).to_pylist()) - {VERSION}):
        raise JournalError(_version_text(path, others))


def _check_numbers(path: Path, name: str, values: pa.Array, most: float) -> None:
    within = pc.and_(pc.greater_equal(values, 0), pc.less_equal(values, most))
    if not pc.all(within).as_py():
        raise JournalError(
            f"{path}: {values.filter(pc.invert(within))[0]} is not a valid {name}. Valid are 0 to "
            f"{most:.0f}; times are in microseconds. {_SCHEMA}"
        )


def _place(leaf: str) -> tuple[str, ...]:
    """The column of a leaf of Parquet, without the writer's name for elements of lists."""
    first, *deeper = leaf.split(".")
    return (first, deeper[-1]) if deeper else (first,)


def _values(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    """The columns, and those of the structs in its lists."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_list(column.type):
            structs = column.flatten()
            for field, values in zip(structs.type, structs.flatten(), strict=True):
                yield (name, field.name), values
        else:
            yield (name,), column


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """Batches of rows with about as many messages as are written at once."""
    rows: int = _MESSAGES_AT_ONCE * metadata.num_rows // max(_items(metadata), 1)
    return max(1, min(_ROWS_AT_ONCE, rows))


def _items(metadata: pq.FileMetaData) -> int:
    lists = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path.endswith(".queue")]
    groups = range(metadata.num_row_groups)
    return sum(metadata.row_group(group).column(number).num_values for group in groups for number in lists)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types agree, except for the writers' names for elements of lists."""
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found) and _same(found.value_type, wanted.value_type))
    if pa.types.is_struct(wanted):
        there = {field.name: field.type for field in found} if pa.types.is_struct(found) else {}
        return all(field.name in there and _same(there[field.name], field.type) for field in wanted)
    return bool(found == wanted)
