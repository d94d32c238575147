"""Checkers: functions from a history to its violations, one module per family of guarantees.

They are exact and near-linear in the number of records: outcomes that some allowed order explains are not reported.
"""

from __future__ import annotations

import sys

from ..guarantees import REGISTRY, Check
from . import ack, dead_letter, duplicate, lease, loss, order, transaction
from .verdict import Checker, NotObservableError, Result, Verdict, Violation, judge, merge

__all__ = ["Checker", "NotObservableError", "Result", "Verdict", "Violation", "all_checkers", "judge", "merge"]

_FAMILIES = (order, duplicate, loss, lease, ack, dead_letter, transaction)


def all_checkers() -> list[tuple[Check, Checker]]:
    """All checkers of the modules of the families, with their guarantees."""
    modules = {module.__name__ for module in _FAMILIES}
    return [(check, getattr(sys.modules[check.module], check.name)) for check in REGISTRY if check.module in modules]
