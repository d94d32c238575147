"""Which server a command asks: contexts of this user, variables and options; and the connection to it."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from queen.cli.client.connection import DEFAULT_URL, Server
from queen.cli.client.showing import clean
from queen.cli.errors import FailedError, UsageError


class Place(Struct, frozen=True, omit_defaults=True):
    """A server: its URL, and the token to send."""

    url: str
    token: str = ""


class Known(Struct, frozen=True, omit_defaults=True):
    """All contexts, and the one in use."""

    contexts: Mapping[str, Place] = {}
    current: str = ""


def file() -> Path:
    """The file with the contexts of this user."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "queen" / "contexts.json"


def load() -> Known:
    """The contexts of this user.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(file().read_bytes(), type=Known)
    except FileNotFoundError:
        return Known()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file()} cannot be read: {problem}. Correct it, or remove it") from None


def store(known: Known) -> None:
    """Replaces the file at once; nobody else may read its tokens."""
    place = file()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as made:
        made.write(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    Path(made.name).replace(place)


def chosen(url: str | None, token: str | None, context: str | None) -> tuple[str, str | None]:
    """URL and token of the server of a command.

    --url comes first, then --context, QUEEN_URL, QUEEN_CONTEXT, and the context in use. A token of the command line
    comes before that of a context, and QUEEN_TOKEN last.
    """
    given, beside = url or os.environ.get("QUEEN_URL"), os.environ.get("QUEEN_TOKEN")
    if url is not None and context is not None:
        raise UsageError("--url and --context both name a server: give one of them")
    if context is None and given:
        return given, token or beside
    known = load()
    name = context or os.environ.get("QUEEN_CONTEXT") or known.current
    place = place_of(known, name) if name else Place(DEFAULT_URL)
    return place.url, token or place.token or beside


def place_of(known: Known, name: str) -> Place:
    """The context of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in known.contexts:
        raise UsageError(f"there is no context {clean(name)}: `queen contexts list` lists them")
    return known.contexts[name]


@contextmanager
def connected(url: str | None, token: str | None, context: str | None) -> Iterator[Server]:
    """The server of these options, for a block."""
    server = Server(*chosen(url, token, context))
    try:
        yield server
    except RecursionError:
        raise FailedError("an answer is nested too deeply") from None
    finally:
        server.close()
