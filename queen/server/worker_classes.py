"""The gunicorn worker classes that can serve the application, and their limitations.

All serve the same resources. ``queen.server.worker`` is the default; docs/adr/0009 has the comparison.
"""

from importlib.util import find_spec

from msgspec import Struct

from queen.config import Settings
from queen.core.errors import SettingError


class WorkerClass(Struct, frozen=True):
    """One class.

    Attributes:
        path: of the class, for gunicorn.
        notes: limitations, one line each.
        needs: a required package.
        advice: what to do if it is missing.
    """

    name: str
    path: str
    notes: tuple[str, ...] = ()
    needs: str = ""
    advice: str = ""


def _classes(settings: Settings) -> dict[str, WorkerClass]:
    threads, waits = settings.server.threads, waits_max(settings)
    return {
        each.name: each
        for each in (
            WorkerClass("uvicorn", "queen.server.worker.QueenWorker"),
            WorkerClass(
                "asgi",
                "queen.server.asgi_worker.QueenAsgiWorker",
                ("asgi: an idle long poll takes twice as much memory as with uvicorn",),
            ),
            WorkerClass(
                "gthread",
                "queen.server.gthread_worker.QueenThreadWorker",
                (f"gthread: {threads} requests at a time per worker, {waits} of them long polls, then 501",),
            ),
            WorkerClass(
                "meinheld",
                "queen.server.meinheld_worker.QueenMeinheldWorker",
                (
                    "meinheld: experimental; it has crashed under load, and a crash loses the requests of the worker",
                    "meinheld: long polls are answered 501, because it does not notice disconnected clients",
                ),
                "meinheld",
                "pip install greenlet setuptools wheel, then `queen meinheld build` (docs/meinheld.md)",
            ),
        )
    }


def waits_max(settings: Settings) -> int:
    """Maximum of long polls of a gthread worker; the other threads are for requests that do not wait."""
    return settings.server.threads - max(1, settings.server.threads // 4)


def usable(settings: Settings) -> WorkerClass:
    """The class of the settings.

    Raises:
        SettingError: it is not installed.
    """
    chosen = _classes(settings)[settings.server.worker_class]
    if chosen.needs and find_spec(chosen.needs) is None:
        raise SettingError(f"QUEEN_WORKER_CLASS={chosen.name} needs the package {chosen.needs}: {chosen.advice}")
    return chosen


def path_of(settings: Settings) -> str:
    """The path of the class of the settings, for gunicorn. Raises like ``usable``."""
    return usable(settings).path
