"""What ``queen doctor`` finds out about the list of several databases (docs/shards.md)."""

import asyncio
from collections.abc import Iterator, Mapping

from queen.core.diagnosis import Finding, Grade
from queen.core.placement import ShardList
from queen.postgres.dsn import Target
from queen.postgres.shard_list import Stored
from queen.shards.setup import look, newest

_TOPIC = "shards"


def examine_shards(targets: Mapping[str, Target], named: Mapping[str, object]) -> Iterator[Finding]:
    """The findings about the list.

    Args:
        targets: the databases with Queen's schema.
        named: all of DATABASE_URLS.
    """
    if not targets:
        return
    stored, _ = asyncio.run(look(targets))
    known = newest([each.shards for each in stored.values()])
    if known is None:
        text, advice = "These databases are no shards yet", "Start a server with DATABASE_URLS once."
        yield Finding(_TOPIC, Grade.WARNING, text, advice)
        return
    found = [*_of_list(known, named)]
    for name, each in stored.items():
        found += _of_one(name, each, known)
    yield from found
    if not found:
        yield Finding(_TOPIC, Grade.OK, f"Every database knows version {known.version} of the list of databases")


def _of_list(known: ShardList, named: Mapping[str, object]) -> Iterator[Finding]:
    for shard in known.in_use:
        if shard.name not in named:
            text = f"DATABASE_URLS lacks {shard.name}, one of the databases of this installation"
            yield Finding(_TOPIC, Grade.PROBLEM, text, "Add it, as NAME=URL, and restart the servers.")
    if known.opened != known.version:
        text = f"A change of the list to version {known.version} was interrupted: some new partitions are not made"
        yield Finding(_TOPIC, Grade.WARNING, text, "Repeat the command (`queen shards add`, `drain`, `retire`).")


def _of_one(name: str, stored: Stored, known: ShardList) -> Iterator[Finding]:
    if stored.own is not None and stored.own != name:
        text = f"This database is the shard {stored.own}"
        advice = "Give each database in DATABASE_URLS the name that it had before."
        yield Finding(_TOPIC, Grade.PROBLEM, text, advice, name)
    elif known.find(name) is None:
        text, advice = "It is no shard yet, and takes no partitions", f"Run `queen shards add {name}`."
        yield Finding(_TOPIC, Grade.WARNING, text, advice, name)
    elif stored.shards is None or stored.shards.version < known.version:
        text = f"It does not know version {known.version} of the list of databases"
        advice = "Repeat the command that changed the list, or restart a server."
        yield Finding(_TOPIC, Grade.WARNING, text, advice, name)
    if stored.moving:
        text = f"{stored.moving} partitions are being moved from or to it"
        advice = "If no `queen shards move` is under way, it was interrupted: repeat it."
        yield Finding(_TOPIC, Grade.WARNING, text, advice, name)
