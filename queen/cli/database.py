"""The databases of commands that work on them directly."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from queen.cli.errors import FailedError
from queen.config import Settings
from queen.core.errors import QueenError
from queen.embedded.server import dsn_of_running
from queen.server.supervisor import embedded_postgres
from queen.system.errors import FolderInUseError

T = TypeVar("T")
P = TypeVar("P")

#: The name of a database that is the only one.
ONLY = ""


@contextmanager
def databases(settings: Settings) -> Iterator[Mapping[str, str]]:
    """The DSN of each database by its name; the embedded PostgreSQL runs for the block if it is the one."""
    if settings.database.shards:
        yield dict(settings.database.shards)
        return
    if settings.database.url:
        yield {ONLY: settings.database.url}
        return
    embedded = embedded_postgres(settings)
    try:
        embedded.start()
    except FolderInUseError:
        if not (running := dsn_of_running(Path(settings.server.data_dir))):
            raise
        yield {ONLY: running}
        return
    try:
        yield {ONLY: embedded.dsn}
    finally:
        embedded.stop()


def on_each(places: Mapping[str, P], work: Callable[[P], T]) -> tuple[dict[str, T], dict[str, QueenError]]:
    """The results by name of the database, and the errors of those that failed; the others are done.

    Raises:
        QueenError: that of the only database.
    """
    results: dict[str, T] = {}
    problems: dict[str, QueenError] = {}
    for name, place in places.items():
        try:
            results[name] = work(place)
        except QueenError as problem:
            if name == ONLY:
                raise
            problems[name] = problem
    return results, problems


def fail_where(problems: Mapping[str, object]) -> None:
    """Raises FailedError if there are problems; it names their databases."""
    if problems:
        raise FailedError("; ".join(f"{label(name)}{problem}" for name, problem in problems.items()))


def label(name: str) -> str:
    """How a line about a database begins."""
    return "" if name == ONLY else f"database {name}: "


def labelled(name: str, result: object) -> Any:  # noqa: ANN401 - an object for JSON
    """A result for JSON, with the name of its database if there are several."""
    return result if name == ONLY else {"database": name, **msgspec.to_builtins(result)}


def document_of(results: Mapping[str, object]) -> object:
    """All results for JSON: that of the only database, or an array."""
    return results[ONLY] if ONLY in results else [labelled(name, result) for name, result in results.items()]
