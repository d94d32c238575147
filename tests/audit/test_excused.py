"""A correct server, of which operators do whatever there is to do: no audit accuses it."""

import asyncio
from collections.abc import Iterator

import pytest

from spark_validation.dialect import read_parquet
from spark_validation.inputs import Inputs
from spark_validation.journal.files import open_journal, write_parquet
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Verdict, run
from tests.audit.conftest import engine_of
from tests.audit.scenes import GUILTY, KEY, SCENES, Scene, deletion_that_no_log_tells
from tests.audit.test_removed import Agent
from tests.support.servers import create_database, drop_database, serving_database


@pytest.fixture(scope="module")
def verdicts(
    engine_name: str, request: pytest.FixtureRequest, postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Verdict]]:
    """Of all scenes at once."""
    url = asyncio.run(create_database(postgres))
    folder = tmp_path_factory.mktemp("journals")
    options = {"EVICTION_INTERVAL": "100", "RETENTION_INTERVAL": "200", "QUEEN_ENCRYPTION_KEY": KEY}
    try:
        with serving_database(url, tmp_path_factory.mktemp("server"), "--workers", "1", **options) as server:
            agent = Agent(server)
            for name, play in SCENES.items():
                play(Scene(server, url, agent, name))
            # Its log, with what operators did, lies beside the journals.
            told = server.output.read_text().splitlines(keepends=True)
            lost = f"/queues/{deletion_that_no_log_tells.__name__}"
            (folder / "server.log").write_text("".join(line for line in told if lost not in line))
        write_parquet(folder / "agent.parquet", agent.journal())
        journal = open_journal(folder, tmp_path_factory.mktemp("work"))
        with Snapshot(url) as snapshot, engine_of(request) as session:
            calls = read_parquet(session, map(str, journal.parquet))
            found = run(Inputs(calls, snapshot.database(session)), max_evidence=10_000)
        yield found
    finally:
        asyncio.run(drop_database(postgres, url))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [each for each in SCENES if each not in GUILTY])
def test_nobody_is_accused(verdicts: list[Verdict], name: str) -> None:
    found = [(each.audit, it.text, it.offset) for each in verdicts for it in each.evidence if it.queue == name]
    assert found == []


@pytest.mark.timeout(1800)
def test_no_call_is_accused(verdicts: list[Verdict]) -> None:
    assert [(each.audit, it.text) for each in verdicts for it in each.evidence if it.queue not in SCENES] == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", GUILTY)
def test_what_operators_did_excuses_nothing_else(verdicts: list[Verdict], name: str) -> None:
    audit, offsets = GUILTY[name]
    [found] = [[it.offset for it in each.evidence if it.queue == name] for each in verdicts if each.audit == audit]
    assert found
    assert offsets is None or sorted(found) == offsets
