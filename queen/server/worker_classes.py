"""gunicorn's worker classes that can serve the application, and what each of them cannot do.

All serve the same resources. ``queen.server.worker`` is the default; docs/adr/0009 has the comparison.
"""

from importlib.util import find_spec

from msgspec import Struct

from queen.config import Settings
from queen.core.errors import SettingError


class WorkerClass(Struct, frozen=True):
    """One class.

    Attributes:
        path: where gunicorn finds it.
        notes: what people should know who use it; each a line.
        needs: a package that has to be installed.
        advice: what to do where that is missing.
    """

    name: str
    path: str
    notes: tuple[str, ...] = ()
    needs: str = ""
    advice: str = ""


def _classes(settings: Settings) -> dict[str, WorkerClass]:
    waits = waits_max(settings)
    return {
        each.name: each
        for each in (
            WorkerClass("uvicorn", "queen.server.worker.QueenWorker"),
            WorkerClass(
                "asgi",
                "queen.server.asgi_worker.QueenAsgiWorker",
                ("asgi: an idle long poll takes twice the memory that it takes with uvicorn",),
            ),
            WorkerClass(
                "gthread",
                "queen.server.gthread_worker.QueenThreadWorker",
                (f"gthread: {settings.threads} requests at a time a worker, {waits} of them long polls, then 501",),
            ),
            WorkerClass(
                "meinheld",
                "queen.server.meinheld_worker.QueenMeinheldWorker",
                (
                    "meinheld: experimental; it has crashed under load, and the requests of a crashed worker are lost",
                    "meinheld: long polls are answered 501, because it does not notice a client that goes",
                ),
                "meinheld",
                "its release does not build against today's greenlet: see docs/meinheld.md for the recipe",
            ),
        )
    }


def waits_max(settings: Settings) -> int:
    """Long polls that a worker of class gthread holds: enough threads remain for requests that do not wait."""
    return settings.threads - max(1, settings.threads // 4)


def usable(settings: Settings) -> WorkerClass:
    """The class that the settings ask for.

    Raises:
        SettingError: it is not installed, or cannot carry what else was asked for.
    """
    chosen = _classes(settings)[settings.worker_class]
    if chosen.needs and find_spec(chosen.needs) is None:
        raise SettingError(f"QUEEN_WORKER_CLASS={chosen.name} needs the package {chosen.needs}: {chosen.advice}")
    carried = {"gthread": waits_max(settings), "meinheld": 0}.get(chosen.name)
    if carried is not None and settings.waiters_max > carried:
        raise SettingError(
            f"QUEEN_MAX_WAITERS={settings.waiters_max}, and a worker of class {chosen.name} can hold {carried} long "
            "polls: use the worker class uvicorn"
        )
    return chosen


def path_of(settings: Settings) -> str:
    """Where gunicorn finds the class that the settings ask for. Raises as ``usable`` does."""
    return usable(settings).path
