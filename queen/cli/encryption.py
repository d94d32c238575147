"""``queen encryption``: keys of encrypted queues."""

import asyncio

import msgspec
import typer
from rich.progress import Progress

from queen.cli.client.showing import document
from queen.cli.database import databases, document_of, fail_where, label, on_each
from queen.cli.options import DataDir, Dsn, environment_with, settings_from
from queen.cli.output import Json, err, even_unread, out
from queen.cli.progress import bar
from queen.config import Settings
from queen.core.errors import DecryptionError, QueenError, SettingError
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.rotation import Rotation, RotationStore, rotate_all
from queen.postgres.setup import prepare
from queen.security.keyring import Keyring
from queen.server import logs

#: If a key is missing, there may be millions.
_UNREADABLE_MAX = 20

encryption = typer.Typer(name="encryption", help="Keys of encrypted queues.", no_args_is_help=True)


class _Watcher:
    """Shows the progress of a rotation, and lists messages that it cannot read."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("re-encrypting", visible=False)
        self._named = 0

    def begun(self, total: int | None) -> None:
        self._progress.update(self._task, total=total, visible=True)

    def advanced(self, number: int) -> None:
        self._progress.update(self._task, advance=number)

    def unreadable(self, place: str, why: DecryptionError) -> None:
        self._named += 1
        if self._named <= _UNREADABLE_MAX:
            with even_unread():
                err.print(f"{place}: {why}", style="red", markup=False)


@encryption.callback()
def _encryption() -> None:
    """Keys of encrypted queues."""


@encryption.command("rotate")
def rotate(dsn: Dsn = None, data_dir: DataDir = None, json: Json = False) -> None:
    """Encrypt all messages of encrypted queues with QUEEN_ENCRYPTION_KEY, while servers run.

    Messages encrypted with a key of QUEEN_ENCRYPTION_OLD_KEYS are re-encrypted. Messages stored before their queue
    became encrypted are encrypted. The command may be interrupted and started again at any time.

    If the embedded PostgreSQL of the data folder is not running, the command starts it.

    --json prints an object with the numbers; an array of several databases (DATABASE_URLS).
    """
    settings = settings_from(environment_with(DATABASE_URL=dsn, QUEEN_DATA_DIR=data_dir), data_dir)
    logs.configure(settings.server.log_level)
    keys = Keyring.from_settings(settings.security.encryption_key, settings.security.encryption_old_keys)
    if keys is None:
        raise SettingError("There is no encryption key: set QUEEN_ENCRYPTION_KEY")
    rotations, problems = _rotate(settings, keys)
    with even_unread():
        if json:
            document(document_of(rotations))
        else:
            for name, rotation in rotations.items():
                out.print(
                    f"{label(name)}key {keys.current_id}: re-encrypted {rotation.changed} messages, {rotation.letters} "
                    f"dead letters, {rotation.timers} timers and schedules",
                    markup=False,
                )
    fail_where({**problems, **{name: _left(each) for name, each in rotations.items() if each.unreadable}})


def _left(rotation: Rotation) -> str:
    named = f"; the first {_UNREADABLE_MAX} are listed above" if rotation.unreadable > _UNREADABLE_MAX else ""
    return f"{rotation.unreadable} messages cannot be decrypted and were left unchanged{named}"


def _rotate(settings: Settings, keys: Keyring) -> tuple[dict[str, Rotation], dict[str, QueenError]]:
    with databases(settings) as urls, bar() as progress:
        return on_each(urls, lambda url: asyncio.run(_work(url, settings, keys, _Watcher(progress))))


async def _work(url: str, settings: Settings, keys: Keyring, watcher: _Watcher) -> Rotation:
    prepared = await prepare(url, settings.database.connect_timeout_ms)
    target = parse(url, "queen encryption", settings.database.connect_timeout_ms)
    pool = Pool(
        msgspec.structs.replace(target, pooled=prepared.pooled), 1, settings.database.statement_timeout_ms / 1000
    )
    try:
        return await rotate_all(RotationStore(pool), keys, watcher)
    finally:
        await pool.close()
