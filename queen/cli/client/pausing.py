"""Pauses and resumes queues and consumer groups."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server, at


class State(Struct):
    """Whether it is to be paused, or is now."""

    paused: bool


def switch(server: Server, route: str, names: Sequence[str], what: str, *, on: bool, json: bool) -> None:
    """Pauses or resumes what has this route with these names, and says so."""
    answer = server.post(Raw, f"{at(route, *names)}/pause", State(on))
    if json:
        showing.document(answer)
    else:
        paused = msgspec.json.decode(answer, type=State).paused
        showing.say(f"{what} {'is paused: its consumers get no messages' if paused else 'is resumed'}")
