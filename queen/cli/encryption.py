"""``queen encryption``: keys of encrypted queues."""

import asyncio
from contextlib import ExitStack

import msgspec
import typer

from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import fail, out
from queen.config import Settings
from queen.core.errors import QueenError, SettingError
from queen.db.dsn import parse
from queen.db.pool import Pool
from queen.db.rotation import Rotation, RotationStore, rotate_all
from queen.db.setup import prepare
from queen.security.keyring import Keyring
from queen.server import logs
from queen.server.supervisor import embedded_postgres

encryption = typer.Typer(name="encryption", help="Keys of encrypted queues.", no_args_is_help=True)


@encryption.callback()
def _encryption() -> None:
    """Keys of encrypted queues."""


@encryption.command("rotate")
def rotate(dsn: Dsn = None, data_dir: DataDir = None) -> None:
    """Bring every message of encrypted queues under QUEEN_ENCRYPTION_KEY, while servers run.

    What is stored under a key of QUEEN_ENCRYPTION_OLD_KEYS is decrypted and encrypted again; what was stored in clear
    before a queue became encrypted is encrypted. It may be stopped and started again at any time.
    """
    try:
        settings = settings_from(environment_with(dsn=dsn, data_dir=data_dir), data_dir)
        logs.configure(settings.log_level)
        keys = Keyring.from_settings(settings.encryption_key, settings.encryption_old_keys)
        if keys is None:
            raise SettingError("There is no key to encrypt with: set QUEEN_ENCRYPTION_KEY")
        rotation = _rotate(settings, keys)
    except QueenError as problem:
        fail(problem)
    out.print(
        f"key {keys.current_id}: {rotation.changed} messages encrypted anew, {rotation.letters} dead letters",
        markup=False,
    )
    if rotation.unreadable:
        fail(
            f"{rotation.unreadable} messages cannot be decrypted and stay as they are: is a key missing in "
            "QUEEN_ENCRYPTION_OLD_KEYS?"
        )


def _rotate(settings: Settings, keys: Keyring) -> Rotation:
    with ExitStack() as stack:
        url = settings.database_url or stack.enter_context(embedded_postgres(settings)).dsn
        return asyncio.run(_work(url, settings, keys))


async def _work(url: str, settings: Settings, keys: Keyring) -> Rotation:
    database = await prepare(url, settings.connect_timeout_ms)
    target = parse(url, "queen encryption", settings.connect_timeout_ms)
    pool = Pool(msgspec.structs.replace(target, pooled=database.pooled), 1, settings.statement_timeout_ms / 1000)
    try:
        return await rotate_all(RotationStore(pool), keys)
    finally:
        await pool.close()
