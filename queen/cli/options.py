"""Options that several commands share; they take precedence over the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from queen.config import Settings, from_environment
from queen.core.errors import SettingError

Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to use, as a libpq connection string; by default that of DATABASE_URL or PG_HOST, else "
        "the embedded one. Other users of this machine can see command lines: put a password into "
        "DATABASE_URL.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Data folder of the embedded PostgreSQL.", show_default="queen-data", file_okay=False),
]


def environment_with(**options: object) -> dict[str, str]:
    """The environment, overridden by the given options; one database that is named replaces several."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    replaced = {"DATABASE_URLS"} if "DATABASE_URL" in given else set()
    return {**{name: value for name, value in os.environ.items() if name not in replaced}, **given}


def settings_from(environment: Mapping[str, str], data_dir: Path | None) -> Settings:
    """The settings; refuses a data folder that they do not use.

    Raises:
        SettingError: a value is invalid, or contradicts another.
    """
    settings = from_environment(environment)
    if data_dir is not None and (settings.database.url or settings.database.shards):
        raise SettingError(
            "--data-dir is the folder of the embedded PostgreSQL, but --dsn, DATABASE_URL, DATABASE_URLS or PG_HOST "
            "names another: give only one of them"
        )
    return settings
