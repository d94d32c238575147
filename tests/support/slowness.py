"""A PostgreSQL in which storing messages takes a minute or is refused: in one partition, or in all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.locks import Connection

_BEGIN = """
    CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NEW; END $$;
    CREATE TRIGGER {name} BEFORE INSERT ON queen.segments FOR EACH ROW {when} EXECUTE FUNCTION public.{name}();
"""
_END = "DROP FUNCTION public.{name} CASCADE"


@asynccontextmanager
async def slow_segments(operator: Connection, part_id: int | None = None) -> AsyncIterator[None]:
    """Each takes a minute, for the length of the block."""
    async with _triggered(operator, "sleep", "PERFORM pg_sleep(60)", part_id):
        yield


@asynccontextmanager
async def refused_segments(operator: Connection, part_id: int | None = None) -> AsyncIterator[None]:
    """Each is refused, for the length of the block."""
    async with _triggered(operator, "refuse", "RAISE EXCEPTION 'refused'", part_id):
        yield


@asynccontextmanager
async def _triggered(operator: Connection, name: str, body: str, part_id: int | None) -> AsyncIterator[None]:
    when = f"WHEN (NEW.part_id = {part_id})" if part_id is not None else ""
    await operator.execute(_BEGIN.format(name=name, body=body, when=when))
    try:
        yield
    finally:
        await operator.execute(_END.format(name=name))
