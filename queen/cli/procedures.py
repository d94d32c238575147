"""``queen procedures``: returns to the version of a stored procedure that an upgrade replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import asyncpg
import typer

from queen.cli.client.showing import document
from queen.cli.database import databases, fail_where, label, labelled, on_each
from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import Json, out
from queen.core.errors import DatabaseSetupError, QueenError
from queen.postgres import earlier_procedures
from queen.postgres.dsn import parse
from queen.postgres.setup import open_connection, prepare
from queen.server import logs

T = TypeVar("T")

procedures = typer.Typer(
    name="procedures", help="Return to stored procedures that the last upgrade replaced.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of a procedure, such as pop_unified_batch_v1.")]


@procedures.callback()
def _procedures() -> None:
    """Return to stored procedures that the last upgrade replaced."""


@procedures.command("list")
def list_(dsn: Dsn = None, data_dir: DataDir = None, json: Json = False) -> None:
    """List the procedures of which an earlier version is kept, and which of those are in use.

    --json prints an array, with the database of each if there are several (DATABASE_URLS).
    """
    found, problems = _on_databases(dsn, data_dir, earlier_procedures.list_earlier)
    rows = [(name, each) for name, listed in found.items() for each in listed]
    if json:
        document([labelled(name, each) for name, each in rows])
    else:
        for name, each in rows:
            state = "earlier version in use" if each.restored else "current version in use"
            out.print(
                f"{label(name)}{each.signature}: replaced {each.replaced_at:%Y-%m-%d %H:%M}, {state}",
                markup=False, soft_wrap=True,
            )  # fmt: skip
    fail_where(problems)


@procedures.command("restore")
def restore(name: Name, dsn: Dsn = None, data_dir: DataDir = None) -> None:
    """Return to the earlier version of a procedure, while servers run.

    It stays in use, also after a restart, until `queen procedures reset` or the next upgrade.
    """
    done, problems = _on_databases(dsn, data_dir, lambda connection: earlier_procedures.restore(connection, name))
    missing = f"No earlier version of {name} is kept: see `queen procedures list`"
    for database, signatures in done.items():
        for signature in signatures:
            out.print(f"{label(database)}{signature}: earlier version in use", markup=False, soft_wrap=True)
    fail_where({**problems, **{database: missing for database, signatures in done.items() if not signatures}})


@procedures.command("reset")
def reset(dsn: Dsn = None, data_dir: DataDir = None) -> None:
    """Return to the current version of every procedure."""
    done, problems = _on_databases(dsn, data_dir, earlier_procedures.forget_restored, then_prepare=True)
    for database in done:
        out.print(f"{label(database)}All procedures are those of this version", markup=False)
    fail_where(problems)


def _on_databases(
    dsn: str | None,
    data_dir: Path | None,
    work: Callable[["asyncpg.Connection[Any]"], Awaitable[T]],
    *,
    then_prepare: bool = False,
) -> tuple[dict[str, T], dict[str, QueenError]]:
    """The results of a function by name of the database, whose schema is that of this version; and errors."""
    settings = settings_from(environment_with(DATABASE_URL=dsn, QUEEN_DATA_DIR=data_dir), data_dir)
    logs.configure(settings.server.log_level)
    with databases(settings) as urls:
        return on_each(
            urls, lambda url: asyncio.run(_work(url, settings.database.connect_timeout_ms, work, then_prepare))
        )


async def _work(
    url: str, timeout_ms: int, work: Callable[["asyncpg.Connection[Any]"], Awaitable[T]], then_prepare: bool
) -> T:
    await prepare(url, timeout_ms)
    connection = await open_connection(parse(url, "queen procedures", timeout_ms))
    try:
        done = await work(connection)
    except asyncpg.InsufficientPrivilegeError as problem:
        raise DatabaseSetupError(f"Run this as the owner of the schema queen: {problem}") from problem
    finally:
        await connection.close()
    if then_prepare:
        await prepare(url, timeout_ms)
    return done
