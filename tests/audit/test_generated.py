"""The runs that the benchmark of the audits generates are valid; the second implementation says so, without Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import generated_run as generator
from bench.scenario import read
from spark_validation.archive.folder import open_filled
from spark_validation.audits import all_audits
from spark_validation.journal.files import open_journal
from tests.audit import second
from tests.support.nightly import mostly_at_night
from tests.support.processes import run as cli
from tests.support.runs import Tables


@pytest.mark.parametrize("hot", mostly_at_night([0.0, 0.3], [0.3]))
def test_a_generated_run_is_valid(tmp_path, monkeypatch, hot):
    monkeypatch.setattr(generator, "A_CALL", 10)
    monkeypatch.setattr(generator, "A_FILE", 1_000)
    places = generator.write(tmp_path, 2_000, 7, hot, 0, lambda *_: None)
    archive, journal = open_filled(places[0]), open_journal(places[1], tmp_path)
    state = archive.state()
    tables = second.as_tables(
        Tables(
            heads=state.heads,
            cursors=state.cursors,
            dead_letters=state.dead_letters,
            queues=state.queues,
            groups=state.groups,
        )
    )
    log = pa.concat_tables([pq.read_table(path, partitioning=None) for path in archive.files])
    tables["log"] = log.drop_columns(["message"])
    tables["calls"] = pa.concat_tables([pq.read_table(path) for path in journal.parquet])
    assert len(tables["log"]) == 2_000
    repeated, transactions, retries, ends = 200 // 20, 2 * 3, 2 * 3, 2 + 1
    assert len(tables["calls"]) == 3 * 200 + repeated - transactions + retries + ends + 1
    assert {audit: reported for audit, reported in second.judge(tables, state.taken_at).items() if reported} == {}


def test_a_generated_run_has_something_for_every_audit(tmp_path):
    done = cli("bench", "audit", "--smoke", "--samples", str(tmp_path / "samples.jsonl"), patience=600)
    assert done.returncode == 0, done.stderr
    samples = {each.case.partition(": ")[2]: each.figures for each in read(tmp_path / "samples.jsonl", "audit").samples}
    whole = samples.pop("all audits")
    assert all(figures["s"] > 0 and figures["CPU s"] >= 0 for figures in samples.values())
    for name in ("s", "CPU s"):
        assert sum(figures[name] for figures in samples.values()) == pytest.approx(whole[name])
    assert set(samples) - {audit.name for audit in all_audits("queen")} == {
        "start, conversion", "figures of the run",
    }  # fmt: skip
    assert set(samples) >= {audit.name for audit in all_audits("queen")}
