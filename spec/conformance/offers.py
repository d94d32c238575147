"""What only some servers promise: judged where a server says that it offers it.

It says so in its OpenAPI document (`/openapi.json`): `x-guarantees` lists what it promises beyond the interface, and
`x-guarantees-per-database` what a server over several databases keeps on each of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from .http import BadAnswerError, NoAnswerError, Server

#: Beyond the interface of Queen MQ: others may be right to do otherwise.
BEYOND = frozenset({"G-ACK-8", "G-IDEM-4", "G-LEASE-7", "G-POP-2", "G-RET-8"})
#: What concerns several partitions, which may be on several databases. What else a server lists is judged all the same.
SPANNING = frozenset({"G-DUR-4", "G-POP-2", "G-POP-3", "G-POP-4", "G-RET-8"})
#: Kept for queues that are on one database together: those are judged.
TOGETHER = frozenset({"G-TXN-1", "G-TXN-2", "G-TXN-3", "G-STR-1", "G-STR-2"})
_DOCUMENT, _NAME, _LIMITED, _TIMEOUT_S = "/openapi.json", "x-guarantees", "x-guarantees-per-database", 10.0


@dataclass(frozen=True)
class Offer:
    """The guarantees that a server offers beyond the interface, and those that it keeps on each database alone."""

    beyond: frozenset[str] = frozenset()
    per_database: frozenset[str] = frozenset()

    @property
    def over_several(self) -> bool:
        """Whether queues have to be made together for what happens at once in both."""
        return not self.per_database.isdisjoint(TOGETHER)


async def offered_by(server: Server) -> Offer:
    """What the server says; nothing where it has no such document."""
    try:
        told = (await server.request("GET", _DOCUMENT, timeout_s=_TIMEOUT_S)).json()
    except (NoAnswerError, BadAnswerError):
        return Offer()
    return Offer(_ids(told, _NAME), _ids(told, _LIMITED))


def _ids(told: object, name: str) -> frozenset[str]:
    ids = told.get(name) if isinstance(told, dict) else None
    return frozenset(each for each in ids if isinstance(each, str)) if isinstance(ids, list) else frozenset()


def why_not(id_: str, offer: Offer) -> str:
    """Why this guarantee is not judged on a server that offers these, if so."""
    if id_ in SPANNING & offer.per_database:
        return f"the server is over several databases and keeps it on each alone: {_DOCUMENT} says so in {_LIMITED}"
    if id_ not in BEYOND or id_ in offer.beyond:
        return ""
    return f"not offered: the interface of Queen MQ does not promise it, and {_DOCUMENT} does not name it in {_NAME}"
