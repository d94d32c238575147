"""Checkers: functions from a history to what is wrong with it, one module a family.

Exact, and near-linear in the number of records: what could have happened in an order that is allowed is not reported.
"""

from __future__ import annotations

import sys

from ..guarantees import REGISTRY, Check
from . import ack, dead_letter, duplicate, lease, loss, order, transaction
from .verdict import Checker, NotObservableError, Result, Verdict, Violation, judge, merge

__all__ = ["Checker", "NotObservableError", "Result", "Verdict", "Violation", "all_checkers", "judge", "merge"]

_FAMILIES = (order, duplicate, loss, lease, ack, dead_letter, transaction)


def all_checkers() -> list[tuple[Check, Checker]]:
    """What is decorated in the modules of the families, with the guarantees that it judges."""
    modules = {module.__name__ for module in _FAMILIES}
    return [(check, getattr(sys.modules[check.module], check.name)) for check in REGISTRY if check.module in modules]
