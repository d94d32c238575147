"""The scenarios of ``queen bench``, except those of ``queen bench load``: one module each."""

from bench.scenario import Scenario
from bench.scenarios import (
    audits,
    checkers,
    depth,
    growth,
    held_snapshot,
    layers,
    listing,
    outbox,
    procedures,
    retention,
    spool,
    sqs,
    waiters,
)

SCENARIOS: tuple[Scenario, ...] = (
    procedures.SCENARIO,
    spool.SCENARIO,
    layers.SCENARIO,
    growth.SCENARIO,
    checkers.SCENARIO,
    audits.SCENARIO,
    waiters.SCENARIO,
    listing.SCENARIO,
    retention.SCENARIO,
    depth.SCENARIO,
    held_snapshot.SCENARIO,
    outbox.SCENARIO,
    sqs.SCENARIO,
)
