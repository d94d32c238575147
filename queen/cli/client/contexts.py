"""``queen contexts``: names for servers, so that a command need not repeat their URL and token."""

import sys
from typing import Annotated

import typer
from msgspec import Struct

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import checked
from queen.cli.client.options import Yes
from queen.cli.client.reach import Known, Place, file, load, place_of, store
from queen.cli.client.showing import clean
from queen.cli.errors import UsageError
from queen.cli.output import Json, err

_PIPE = "-"

contexts = typer.Typer(
    name="contexts", help="Names for servers: list, show, create, use, delete.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the context.", metavar="CONTEXT", show_default=False)]


class Shown(Struct, frozen=True):
    """A context for people and scripts: its token is not shown."""

    name: str
    url: str
    token: bool
    current: bool


def _shown(known: Known, name: str) -> Shown:
    place = place_of(known, name)
    return Shown(name, place.url, bool(place.token), name == known.current)


@contexts.callback()
def _contexts() -> None:
    """Names for servers: list, show, create, use, delete."""


@contexts.command("list")
def list_(json: Json = False) -> None:
    """List the contexts, and which one is in use.

    --json prints an array.
    """
    known = load()
    found = [_shown(known, name) for name in sorted(known.contexts)]
    if json:
        showing.document(found)
        return
    made = showing.Listing("context", "url", "token", "in use")
    for each in found:
        made.add(each.name, each.url, "yes" if each.token else "", "yes" if each.current else "")
    if found:
        made.show()
    else:
        err.print("no contexts: `queen contexts create NAME --url …` makes one", style="dim", markup=False)


@contexts.command("show")
def show(name: Name, json: Json = False) -> None:
    """Show a context. Its token is not printed.

    --json prints an object.
    """
    found = _shown(load(), name)
    if json:
        showing.document(found)
        return
    showing.record(
        ("context", found.name),
        ("url", found.url),
        ("token", "yes" if found.token else "none"),
        ("in use", "yes" if found.current else "no"),
    )


@contexts.command("create")
def create(
    name: Name,
    url: Annotated[str, typer.Option(help="URL of the server.", show_default=False)],
    token: Annotated[
        str | None,
        typer.Option(
            help="Bearer token to send with each request; - reads it from standard input.", show_default=False
        ),
    ] = None,
) -> None:
    """Create a context, or replace the one of this name. The first one is in use at once."""
    checked(url)
    if not name:
        raise UsageError("a name must have at least one character")
    known = load()
    secret = sys.stdin.readline().strip() if token == _PIPE else token or ""
    store(Known({**known.contexts, name: Place(url, secret)}, known.current or name))
    showing.say(f"{name} is {url}, in {file()}")


@contexts.command("use")
def use(name: Name) -> None:
    """Make a context that of all commands that name no server."""
    known = load()
    place = place_of(known, name)
    store(Known(known.contexts, name))
    showing.say(f"commands now go to {name}: {place.url}")


@contexts.command("delete")
def delete(name: Name, yes: Yes = False) -> None:
    """Delete a context, with its token."""
    known = load()
    place_of(known, name)
    confirm(f"Delete the context {clean(name)}?", yes=yes)
    left = {other: place for other, place in known.contexts.items() if other != name}
    store(Known(left, "" if known.current == name else known.current))
    showing.say(f"{name} deleted")
