"""30,000 queues, groups, labels, dead letters and traces: no list is without a bound, and totals are of everything."""

from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from tests.support.processes import Server, clean_environment, open_folder, serving

QUEUES = 30_000
WORKERS = 200
ANSWER_BYTES_MAX = 2**20
GROUP = "readers"

#: Figures stand where the background puts them; what has no cursor and no message costs no time to make.
FILL = """
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT format('shop-%s.task-%s.queue-%s', n, n, n) FROM generate_series(1, {queues}) AS n),
    ARRAY(SELECT 'p' FROM generate_series(1, {queues})), true);
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT 'wide' FROM generate_series(1, {queues})),
    ARRAY(SELECT format('partition-%s', n) FROM generate_series(1, {queues}) AS n), true);
INSERT INTO queen.consumer_groups_metadata (queue_id, name, subscription_mode, since, created_at)
SELECT q.id, '{group}', 'all', '-infinity', now() FROM queen.queues AS q;
INSERT INTO queen.consumer_groups_metadata (queue_id, name, subscription_mode, since, created_at)
SELECT q.id, format('group-%s', n), 'all', '-infinity', now()
FROM queen.queues AS q, generate_series(1, {queues}) AS n WHERE q.name = 'wide';
INSERT INTO queen.group_stats
SELECT g.id, g.queue_id, 1, 1, g.id, 0, 0, 7, false, now() - interval '2 hours', '{{}}', now()
FROM queen.consumer_groups_metadata AS g;
INSERT INTO queen.queue_stats
SELECT q.id, 1, 10, 5, 1, 3, 0, 1, 5, now() - interval '2 hours', now() FROM queen.queues AS q;
INSERT INTO queen.queue_metrics
SELECT date_trunc('minute', now()) - make_interval(mins => m), q.name, format('host:%s', q.id % {workers}),
    1, q.id, 1, q.id, 0, 1, q.id, 0, 0, 0, 5, 5, 3
FROM queen.queues AS q, generate_series(0, 2) AS m;
INSERT INTO queen.worker_metrics
SELECT date_trunc('minute', now()) - make_interval(mins => m), format('host:%s', n), 'host', n,
    6, 1, 1, 1, 1, 1, 1, 1, 1, 10, 5, 0, 0, now() - make_interval(secs => n / 100.0)
FROM generate_series(1, {workers}) AS n, generate_series(0, 59) AS m;
INSERT INTO queen.dead_letter_queue (queue_id, part_id, off, grp_id, consumer_group, transaction_id, payload, error,
    retry_count, created_at, failed_at)
SELECT p.queue_id, p.id, 0, g.id, '{group}', format('t-%s', p.id), '{{"a": 1}}', 'broken', 3, now(), now()
FROM queen.partitions AS p JOIN queen.consumer_groups_metadata AS g ON g.queue_id = p.queue_id AND g.name = '{group}';
INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at)
SELECT p.queue_id, p.id, 0, '{group}', 'seen', '{{"step": 1}}', '1', now() FROM queen.partitions AS p;
INSERT INTO queen.trace_names SELECT format('name-%s', t.id), t.id FROM queen.traces AS t;
INSERT INTO queen.trace_names SELECT 'common', t.id FROM queen.traces AS t;
ANALYZE;
"""


@pytest.fixture(scope="module")
def large() -> Iterator[Server]:
    """A server with so much of everything."""
    # Statistics of the large queue are not computed anew meanwhile: the figures are made up.
    environment = clean_environment(STATS_INTERVAL_MS="3600000")
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as running:
        fill(running.dsn)
        yield running


def fill(dsn: str) -> None:
    import asyncio

    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(FILL.format(queues=QUEUES, workers=WORKERS, group=GROUP))
        await connection.close()

    asyncio.run(run())


def get(server: Server, path: str) -> Any:
    status, answer = server.request("GET", path)
    assert status == 200, answer
    return answer
