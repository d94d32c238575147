"""``queen doctor``: checks PostgreSQL, the schema and the spool, and says what to do."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import UNSET, Struct, structs
from rich.text import Text

from queen import __distribution__
from queen.cli.client.options import Context, Token
from queen.cli.client.reach import connected
from queen.cli.client.showing import document
from queen.cli.database import ONLY, label, on_each
from queen.cli.doctor_of_server import examine_server
from queen.cli.doctor_of_shards import examine_shards
from queen.cli.errors import ExitCode, UsageError
from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import Json, out
from queen.cli.spool import paths
from queen.config import Settings
from queen.core.diagnosis import Finding, Grade, SpoolFacts, judge, judge_spool, worst
from queen.core.errors import DatabaseSetupError, DatabaseUnavailableError, SettingError
from queen.core.version import VERSION
from queen.embedded.server import dsn_of_running
from queen.main import open_spool
from queen.postgres.diagnosis import accept_clock as have_clock_accepted
from queen.postgres.diagnosis import examine
from queen.postgres.dsn import Target, parse
from queen.spool import place

_EXIT = {Grade.OK: ExitCode.OK, Grade.WARNING: ExitCode.FAILED, Grade.PROBLEM: ExitCode.IMPOSSIBLE}
_MARKS = {Grade.OK: ("ok", "green"), Grade.WARNING: ("look", "yellow"), Grade.PROBLEM: ("act", "bold red")}


class Report(Struct, frozen=True):
    """The report as JSON."""

    version: str
    grade: Grade
    findings: list[Finding]


def doctor(
    dsn: Dsn = None,
    data_dir: DataDir = None,
    accept_clock: Annotated[
        bool,
        typer.Option("--accept-clock", help="First declare PostgreSQL's clock correct, whatever steps it has made."),
    ] = False,
    json: Json = False,
    url: Annotated[
        str | None, typer.Option(help="Check the server at this URL, over HTTP, instead.", show_default=False)
    ] = None,
    token: Token = None,
    context: Context = None,
) -> None:
    """Check PostgreSQL, schema and spool; or, with --url or --context, a server. 0: well, 1: warnings, 2: problems."""
    if url is None and context is None:
        findings = _local(dsn, data_dir, accept_clock=accept_clock)
    elif dsn is not None or data_dir is not None or accept_clock:
        raise UsageError("--url and --context check a server over HTTP: omit --dsn, --data-dir and --accept-clock")
    else:
        with connected(url, token, context) as server:
            findings = list(examine_server(server))
    grade = worst(findings)
    if json:
        document(Report(VERSION, grade, findings))
    else:
        _print(findings)
    raise typer.Exit(_EXIT[grade])


def _local(dsn: str | None, data_dir: Path | None, *, accept_clock: bool) -> list[Finding]:
    """The findings about PostgreSQL and the spool of this machine."""
    settings = settings_from(environment_with(DATABASE_URL=dsn, QUEEN_DATA_DIR=data_dir), data_dir)
    targets = _targets(settings)
    # Of several, an unavailable one is a finding.
    accepted, _ = on_each(targets, _accept) if accept_clock else ({}, {})
    return [*[_of(name, finding) for name, finding in accepted.items()], *_examine(settings, targets)]


def _accept(target: Target) -> Finding:
    distrusted_s = asyncio.run(have_clock_accepted(target))
    return Finding(
        "clock", Grade.OK, f"PostgreSQL's clock is accepted; until now data was kept {distrusted_s:.0f} s longer"
    )


def _targets(settings: Settings) -> dict[str, Target]:
    """The databases by name, which is empty for the only one."""
    urls = dict(settings.database.shards) or {ONLY: _database_url(settings)}
    return {name: parse(url, "queen doctor", settings.database.connect_timeout_ms) for name, url in urls.items()}


def _of(name: str, finding: Finding) -> Finding:
    """A finding about one of the databases."""
    return structs.replace(finding, database=name or UNSET)


def _examine(settings: Settings, targets: Mapping[str, Target]) -> Iterator[Finding]:
    yield Finding("queen", Grade.OK, f"{__distribution__} {VERSION}")
    connections = settings.pool_sizes.total
    found = {name: list(_examine_database(target, connections)) for name, target in targets.items()}
    for name, findings in found.items():
        yield from (_of(name, each) for each in findings)
    if ONLY not in targets:
        sound = {name: targets[name] for name, findings in found.items() if _has_schema(findings)}
        yield from examine_shards(sound, targets)
    yield from _examine_spools(settings, {name: _is_up(findings) for name, findings in found.items()})


def _is_up(findings: Sequence[Finding]) -> bool:
    return not any(each.topic == "database" for each in findings)


def _has_schema(findings: Sequence[Finding]) -> bool:
    return not any(each.topic in ("database", "schema") and each.grade is Grade.PROBLEM for each in findings)


def _examine_spools(settings: Settings, up: Mapping[str, bool]) -> Iterator[Finding]:
    for path, facts in _spools(settings):
        name = ONLY if ONLY in up else path.name
        yield from (_of(name, each) for each in judge_spool(facts, database_up=up.get(name, False)))


def _examine_database(target: Target, connections: int) -> Iterator[Finding]:
    try:
        yield from judge(asyncio.run(examine(target)), connections)
    except (DatabaseUnavailableError, DatabaseSetupError) as problem:
        text, _, advice = str(problem).partition(". ")
        yield Finding("database", Grade.PROBLEM, text, advice or "Is it running, and are host, port and user right?")


def _database_url(settings: Settings) -> str:
    if url := settings.database.url or dsn_of_running(Path(settings.server.data_dir)):
        return url
    raise SettingError(
        f"No PostgreSQL: the embedded one of {settings.server.data_dir} is not running. Start `queen serve`, or "
        "name another with --dsn, DATABASE_URL or PG_HOST"
    )


def _spools(settings: Settings) -> Iterator[tuple[Path, SpoolFacts]]:
    for path in paths(settings, None):
        if (installation := place.installation_of(path)) is not None:
            state = open_spool(settings, path, installation).state()
            yield (
                path,
                SpoolFacts(
                    str(path),
                    state.spooling,
                    state.messages,
                    state.bytes,
                    state.bytes_max,
                    state.oldest_age_s,
                    state.failed,
                    shutil.disk_usage(path).free,
                    state.failed_age_s,
                    state.held_partitions,
                    state.held_age_s,
                    state.held_codes,
                ),
            )


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        mark, style = _MARKS[finding.grade]
        text = finding.text if finding.database is UNSET else f"{label(finding.database)}{finding.text}"
        out.print(Text.assemble((f"{mark:<5}", style), (f"{finding.topic:<13}", "dim"), text))
        if finding.advice:
            out.print(Text(f"{'':<18}{finding.advice}", style))
