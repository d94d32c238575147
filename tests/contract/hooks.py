"""Hooks of schemathesis for this server: they make long polls short."""

import re
from typing import Any

import schemathesis

_TIMEOUT_MS = 20
#: Most that the contract allows.
_LIMITS = {"timeout": 3_600_000, "wait": 3600}
_SHORT = {"timeout": str(_TIMEOUT_MS), "wait": str(_TIMEOUT_MS / 1000)}


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Shortens what would wait; what the server has to refuse stays as it is."""
    query = case.query if isinstance(case.query, dict) else {}
    for name, most in _LIMITS.items():
        text = str(query.get(name, ""))
        if re.fullmatch(r"\d+(\.\d+)?", text) and float(_SHORT[name]) < float(text) <= most:
            query[name] = _SHORT[name]
    pop = case.body.get("pop") if isinstance(case.body, dict) else None
    if isinstance(pop, dict) and pop.get("wait") is True and _fits(pop.get("timeout")):
        pop["timeout"] = _TIMEOUT_MS


def _fits(timeout: Any) -> bool:
    return timeout is None or (type(timeout) is int and 0 <= timeout <= _LIMITS["timeout"])
