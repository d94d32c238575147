"""Audits: functions from tables to what is wrong with them, one module a family.

What could have happened in an order that is allowed is not reported, and neither is what a call without an answer, or
an agent whose journal was cut short, may have caused.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from queen_spec.guarantees import REGISTRY

from . import ack, dead_letter, duplicate, group, lease, loss, order, retention, simple_mq, spool, transaction

_FAMILIES = {
    "queen": (order, loss, duplicate, lease, ack, dead_letter, transaction, group, retention, spool),
    "simple-mq": (simple_mq,),
}
INTERFACES = tuple(_FAMILIES)
"""The interfaces whose runs can be audited."""


@dataclass(frozen=True)
class Audit:
    """An audit, and the tables that it looks at: those in ``needs``, and those in ``uses`` if they are there."""

    name: str
    ids: tuple[str, ...]
    find: Callable[..., DataFrame]
    needs: tuple[str, ...]
    uses: tuple[str, ...]

    @property
    def definition(self) -> str:
        """What the audit reports, in words."""
        return inspect.cleandoc(self.find.__doc__ or "")


def all_audits(interface: str) -> list[Audit]:
    """What is decorated in the modules of an interface's families, with the guarantees that it judges."""
    modules = {module.__name__ for module in _FAMILIES[interface]}
    found = [(check, getattr(sys.modules[check.module], check.name)) for check in REGISTRY if check.module in modules]
    return [_audit(check.name, check.ids, function) for check, function in found]


def _audit(name: str, ids: tuple[str, ...], function: Callable[..., DataFrame]) -> Audit:
    parameters = inspect.signature(function).parameters.values()
    needs = tuple(each.name for each in parameters if each.default is inspect.Parameter.empty)
    return Audit(name, ids, function, needs, tuple(each.name for each in parameters if each.name not in needs))
