"""A PostgreSQL in which storing messages takes a minute: in one partition, or in all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.locks import Connection

_SLOW = """
    CREATE FUNCTION public.sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
    CREATE TRIGGER slow BEFORE INSERT ON queen.segments FOR EACH ROW {} EXECUTE FUNCTION public.sleep();
"""
_QUICK = "DROP FUNCTION public.sleep CASCADE"


@asynccontextmanager
async def slow_segments(operator: Connection, part_id: int | None = None) -> AsyncIterator[None]:
    """For the length of the block."""
    await operator.execute(_SLOW.format(f"WHEN (NEW.part_id = {part_id})" if part_id is not None else ""))
    try:
        yield
    finally:
        await operator.execute(_QUICK)
