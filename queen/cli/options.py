"""Options that several commands have; they win over the environment."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from queen.config import Settings, from_environment
from queen.core.errors import SettingError

Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to use, as libpq takes it; without it DATABASE_URL or PG_HOST, else the embedded one. "
        "Other users see the command line: give a password in DATABASE_URL.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the embedded PostgreSQL.", show_default="queen-data", file_okay=False)
]


def environment_with(**options: object) -> dict[str, str]:
    """The environment with the options that were given, by the names of the settings, in place of its variables."""
    variables = {field.name: field.metadata["variables"][0] for field in fields(Settings) if field.metadata}
    given = {variables[name]: str(value) for name, value in options.items() if value is not None}
    return {**os.environ, **given}


def settings_from(environment: Mapping[str, str], data_dir: Path | None) -> Settings:
    """The settings, which must have a use for the data folder if one was named.

    Raises:
        SettingError: a value cannot be used, or contradicts another.
    """
    settings = from_environment(environment)
    if data_dir is not None and settings.database_url:
        raise SettingError(
            "--data-dir is the folder of the embedded PostgreSQL, and --dsn, DATABASE_URL or PG_HOST names another: "
            "give only one of them"
        )
    return settings
