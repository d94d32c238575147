"""``queen worker``: runs functions that work on messages (docs/worker.md)."""

import asyncio
import logging
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from queen.cli.client.options import Context, Token, Url
from queen.cli.client.reach import chosen
from queen.cli.errors import ExitCode, FailedError, UsageError
from queen.cli.output import err
from queen.worker import Client, RefusedError, SocketClient, Worker, run
from queen.worker.runner import THREADS


def worker(
    place: Annotated[
        str, typer.Argument(help="Module and name of a queen.worker.Worker.", metavar="MODULE:NAME", show_default=False)
    ],
    grace: Annotated[
        float, typer.Option(help="Seconds for messages that are being worked on, at a stop.", min=0, max=3600)
    ] = 30.0,
    websocket: Annotated[
        bool, typer.Option("--websocket", help="Get messages over WebSockets, not with long polls.")
    ] = False,
    url: Url = None,
    token: Token = None,
    context: Context = None,
) -> None:
    """Run the tasks of a program until SIGTERM or Ctrl-C; a second one ends it at once."""
    found = _found(place)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        asyncio.run(_work(found, *chosen(url, token, context), grace, websocket))
    except RefusedError as problem:
        raise FailedError(problem) from None
    if any(each.name.startswith(THREADS) and each.is_alive() for each in threading.enumerate()):
        # Python would wait for functions that did not end in time.
        os._exit(ExitCode.OK)


def _found(place: str) -> Worker:
    """The worker of a program in this folder, or of an installed one."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise UsageError(f"{place!r} names no worker: write MODULE:NAME, such as shop.tasks:worker")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as problem:
        raise UsageError(f"{place}: {problem}. Is this the folder of the program?") from None
    except AttributeError:
        raise UsageError(f"the module {module} has no {name}: write MODULE:NAME") from None
    if not isinstance(found, Worker) or not found.tasks:
        raise UsageError(f"{place} is no queen.worker.Worker with tasks: give a function @{name}.task(queue=…)")
    return found


async def _work(found: Worker, url: str, token: str | None, grace: float, websocket: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stopping() -> None:
        if stop.is_set():
            # What is being worked on is delivered again when its lease ends.
            os._exit(ExitCode.INTERRUPTED)
        stop.set()
        err.print("stopping: messages that are being worked on are finished", style="dim")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping)
    connections = sum(2 * task.concurrency for task in found.tasks) + 1
    made = SocketClient(found, stop, url, token) if websocket else Client(url, token, connections)
    async with made as client:
        for task in found.tasks:
            err.print(f"{task.name} works on {task.queue}", style="dim", markup=False)
        await run(found, client, stop, grace)
