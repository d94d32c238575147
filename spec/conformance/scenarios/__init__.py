"""Scenarios: each puts the server into one situation and checks its answers.

What is decorated in the modules of this package is run. A scenario returns if all was as promised, raises
`RefutedError` if not, and `SkippedError` if the server does not support what the check needs.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ...guarantees import REGISTRY, Check
from ..lab import Lab
from . import ack, administration, dead_letter, group, isolation, lease, pop, push, stream, transaction, wait

Scenario: TypeAlias = Callable[[Lab], Awaitable[None]]

_FAMILIES = (push, pop, lease, ack, dead_letter, transaction, stream, group, wait, isolation, administration)


def all_scenarios() -> list[tuple[Check, Scenario]]:
    """Every scenario, with the guarantees that it checks."""
    modules = {module.__name__ for module in _FAMILIES}
    return [(check, getattr(sys.modules[check.module], check.name)) for check in REGISTRY if check.module in modules]
