"""What a worker has for a database is assembled whole, or not at all."""

from pathlib import Path

import asyncpg
import pytest

from queen.config import from_environment
from queen.core.errors import SettingError
from queen.main import assemble_database
from queen.postgres.setup import prepare
from tests.support.clock import eventually


async def test_an_assembly_that_fails_leaves_no_connection(postgres: str, tmp_path: Path) -> None:
    """It is repeated every second: ``queen.shards.assembly``."""
    await prepare(postgres, 60_000)
    settings = from_environment({"DATABASE_URL": postgres, "FILE_BUFFER_DIR": str(tmp_path / "missing")})
    observer = await asyncpg.connect(postgres)
    for _ in range(5):
        with pytest.raises(SettingError, match="does not exist"):
            await assemble_database(settings, lambda _job, _result: None)
    there = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'queen%')"

    async def none_is_left() -> bool:
        return not await observer.fetchval(there)

    await eventually(none_is_left, "the end of all connections")
    await observer.close()
