"""The command line: one module a command, each registered here."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from queen import __distribution__
from queen.cli.audit import audit
from queen.cli.doctor import doctor
from queen.cli.encryption import encryption
from queen.cli.init import init
from queen.cli.output import out
from queen.cli.serve import serve
from queen.cli.settings import settings
from queen.cli.spool import spool
from queen.cli.verify import verify
from queen_bench.command import bench

_COMMANDS = (serve, init, doctor, settings, verify)

app = typer.Typer(
    name="queen",
    help="A message queue on PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(encryption)
app.add_typer(audit)
app.add_typer(bench)
app.add_typer(spool)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"{__distribution__} {_version()}", markup=False)
        raise typer.Exit


def _version() -> str:
    try:
        return version(__distribution__)
    except PackageNotFoundError:
        return "(not installed, run from its source)"


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A message queue on PostgreSQL."""
