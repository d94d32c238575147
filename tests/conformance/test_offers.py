"""What only this server promises is judged where a server says that it offers it."""

import json
from pathlib import Path

import pytest

from queen.http.openapi.document import GUARANTEES, PER_DATABASE
from spec.checkers import all_checkers
from spec.conformance import offers, run
from spec.conformance.scenarios import all_scenarios
from tests.conformance.test_verify import broken
from tests.support.processes import open_folder, serving
from tests.support.shards import new_databases, serving_shards
from tests.support.stubs import Proxy, Stub, stub


class NoDocument(Proxy):
    """A server without an OpenAPI document."""

    def forward(self, body: bytes) -> tuple[bytes, int]:
        return (b'{"error":"no"}', 404) if self.path == "/openapi.json" else super().forward(body)


class NoTransactions(Proxy):
    def forward(self, body: bytes) -> tuple[bytes, int]:
        return (b'{"error":"no"}', 404) if self.path == "/api/v1/transaction" else super().forward(body)


@pytest.mark.parametrize("kind", [NoDocument, NoTransactions])
def test_what_a_server_does_not_offer_is_skipped_with_the_reason(kind: type[Stub]) -> None:
    asked = ["G-IDEM-4", "G-POP-2"] if kind is NoDocument else ["G-TXN-1"]
    with open_folder() as place, serving(place / "data") as server, stub(kind, upstream=server.port) as (url, _):
        report = run(url, seed=7, profile="quick", only=[*asked, "G-IDEM-3"])
    scenarios = [row for row in report.rows if not row.check.startswith("workload")]
    assert {row.id for row in scenarios if row.result == "skipped"} == set(asked)
    assert {row.id for row in scenarios if row.result == "valid"} == {"G-IDEM-3"}
    reason = "not offered" if kind is NoDocument else "the server has no transactions"
    assert all(row.text.startswith(reason) for row in scenarios if row.result == "skipped")


class Offers(Stub):
    """Says something in its document, and nothing else."""

    def do_GET(self) -> None:
        self.answer(self.seen["document"] if self.path == "/openapi.json" else b"<html>")


@pytest.mark.parametrize(
    ("document", "result"),
    [
        (b'{"x-guarantees":["G-IDEM-4"]}', "unknown"), (b'{"x-guarantees":["G-ACK-8",5]}', "skipped"),
        (b'{"x-guarantees":"G-IDEM-4"}', "skipped"), (b"[]", "skipped"), (b"{", "skipped"), (b"", "skipped"),
    ],
)  # fmt: skip
def test_a_document_may_say_anything(document: bytes, result: str) -> None:
    with stub(Offers, document=document) as (url, _):
        [row] = run(url, only=["G-IDEM-4"]).rows
    assert row.result == result


@pytest.mark.parametrize(
    ("id_", "result"),
    [("G-POP-3", "skipped"), ("G-ACK-1", "unknown"), ("G-TXN-1", "unknown"), ("G-LEASE-7", "skipped")],
)
def test_what_is_kept_on_each_database_alone_is_skipped_if_it_concerns_several_partitions(
    id_: str, result: str
) -> None:
    document = json.dumps({"x-guarantees-per-database": ["G-POP-3", "G-ACK-1", "G-TXN-1"]}).encode()
    with stub(Offers, document=document) as (url, _):
        rows = run(url, only=[id_]).rows
    assert {row.result for row in rows if not row.check.startswith("workload")} == {result}


def test_a_server_over_several_databases_is_valid_or_says_what_is_skipped(postgres: str, tmp_path: Path) -> None:
    with new_databases(postgres) as databases, serving_shards(databases, tmp_path / "server") as server:
        report = run(f"http://127.0.0.1:{server.port}", seed=7, profile="quick")
    assert [row for row in report.rows if row.result not in ("valid", "skipped")] == []
    scenarios = [row for row in report.rows if not row.check.startswith("workload")]
    skipped = {row.id for row in scenarios if "several databases" in row.text and row.result == "skipped"}
    assert skipped == offers.SPANNING
    assert {row.id for row in scenarios if row.result == "valid"} >= {*offers.TOGETHER, "G-ORD-1", "G-GRP-2"}


def test_this_server_offers_what_only_it_promises() -> None:
    assert set(GUARANTEES) == offers.BEYOND
    assert set(PER_DATABASE) >= offers.SPANNING | offers.TOGETHER
    assert {id_ for check, _ in all_scenarios() for id_ in check.ids} >= offers.BEYOND
    assert not {id_ for check, _ in all_checkers() for id_ in check.ids} & offers.BEYOND


def test_nothing_that_is_skipped_makes_a_static_server_pass(tmp_path: Path) -> None:
    report, _ = broken(Offers, tmp_path, document=b"{}")
    assert json.dumps(report).count('"unknown"') > 50
