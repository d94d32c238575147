import sys; sys.path.insert(0, "/tmp")
from test_timing import run
from tests.integration.test_pgbouncer import pgbouncer, pooled_server, pooled  # noqa
async def test_direct(api, queue): await run(api, queue)
async def test_pooled(pooled, queue): await run(pooled, queue); await run(pooled, queue+"2")
