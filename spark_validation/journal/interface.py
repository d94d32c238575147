"""The interface whose calls a folder of journals has."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import JournalError
from .files import files_of, read_lines

_KINDS = {
    "simple-mq": {"enqueue", "dequeue", "acknowledge", "requeue", "extend"},
    "sqs": {"send", "receive", "delete", "hide", "left"},
}
#: What every interface has.
_COMMON = {"configured", "clock", "fault", "change", "end"}
#: Of a file of lines: an agent's first calls say what it speaks.
_LINES = 100


def interface_of(folder: Path, otherwise: str) -> str:
    """The one that all calls belong to; if there is none or several, or a file cannot be read, another one."""
    try:
        kinds = {kind for path in files_of(folder) for kind in _kinds_in(path)} - _COMMON
    except (JournalError, pa.ArrowException, OSError):
        return otherwise
    return next((name for name, own in _KINDS.items() if kinds and kinds <= own), otherwise)


def _kinds_in(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from pq.read_table(path, columns=["kind"])["kind"].unique().to_pylist()
    elif path.suffix == ".jsonl":
        yield from (call.kind for call in islice(read_lines(path), _LINES))
