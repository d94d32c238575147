"""What only this server promises: judged where a server says that it offers it.

It says so in its OpenAPI document (`/openapi.json`), in a list of ids named `x-guarantees`.
"""

from __future__ import annotations

from .http import BadAnswerError, NoAnswerError, Server

#: Beyond the interface of Queen MQ: others may be right to do otherwise.
BEYOND = frozenset({"G-ACK-8", "G-IDEM-4", "G-LEASE-7", "G-POP-2", "G-RET-8"})
_DOCUMENT, _NAME, _TIMEOUT_S = "/openapi.json", "x-guarantees", 10.0


async def offered_by(server: Server) -> frozenset[str]:
    """What the server says that it offers beyond the interface; nothing where it has no such document."""
    try:
        told = (await server.request("GET", _DOCUMENT, timeout_s=_TIMEOUT_S)).json()
    except (NoAnswerError, BadAnswerError):
        return frozenset()
    ids = told.get(_NAME) if isinstance(told, dict) else None
    return frozenset(each for each in ids if isinstance(each, str)) if isinstance(ids, list) else frozenset()


def why_not(id_: str, offered: frozenset[str]) -> str:
    """Why this guarantee is not judged on a server that offers these, if so."""
    if id_ not in BEYOND or id_ in offered:
        return ""
    return f"not offered: the interface of Queen MQ does not promise it, and {_DOCUMENT} does not name it in {_NAME}"
