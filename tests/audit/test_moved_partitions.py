"""Audits and partitions that move between databases."""

import pytest

from spark_validation.errors import DatabaseError
from spark_validation.log.several import snapshot_of
from spec.guarantees import Level, checks
from tests.property.test_moves import LANE, PARTITION, broker, made
from tests.support.moving_broker import MovingBroker
from tests.support.shards import urls

__all__ = ["broker", "made"]


@checks("G-SHARD-8", level=Level.MODEL)
def test_an_audit_waits_for_the_end_of_a_move(broker: MovingBroker) -> None:
    """Else a partition might be in two snapshots, or in none."""
    broker.begin_move(LANE)
    with pytest.raises(DatabaseError, match="are being moved"):
        snapshot_of(urls(broker.databases)).__enter__()
    broker.end_moves()
    with snapshot_of(urls(broker.databases)) as snapshots:
        heads = [head for head in snapshots.state().heads if head.partition == PARTITION]
        assert [head.database for head in heads] == [broker.home(LANE)]
