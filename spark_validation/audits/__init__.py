"""Audits: functions from tables to violations, one module per family.

Not reported is what an allowed order of events can explain, or a call without an answer, or an agent whose journal was
cut short.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from spec.guarantees import REGISTRY

from . import (
    ack,
    answers,
    dead_letter,
    duplicate,
    group,
    lease,
    loss,
    order,
    outbox,
    retention,
    simple_mq,
    spool,
    sqs,
    stored,
    transaction,
)
from .basis import Basis, bases_of

_MODULES = (
    order,
    loss,
    duplicate,
    lease,
    ack,
    dead_letter,
    transaction,
    group,
    retention,
    spool,
    outbox,
    stored,
    answers,
)
_FAMILIES = {
    "queen": _MODULES,
    "simple-mq": (simple_mq,),
    "sqs": (sqs,),
}
INTERFACES = tuple(_FAMILIES)
"""The interfaces whose runs can be audited."""


@dataclass(frozen=True)
class Audit:
    """An audit, and its tables: those in ``needs``, and those in ``uses`` if they exist.

    It can judge if each of the ``bases`` has rows.
    """

    name: str
    ids: tuple[str, ...]
    find: Callable[..., DataFrame]
    needs: tuple[str, ...]
    uses: tuple[str, ...]
    bases: tuple[Basis, ...]

    @property
    def definition(self) -> str:
        """What the audit reports, in words."""
        return inspect.cleandoc(self.find.__doc__ or "")

    def violations(self, tables: Mapping[str, DataFrame | None]) -> DataFrame:
        """Its violations in these tables."""
        return self.find(**{name: tables[name] for name in inspect.signature(self.find).parameters})


def all_audits(interface: str) -> list[Audit]:
    """The decorated functions in the modules of an interface's families, with the guarantees that they judge."""
    modules = {module.__name__ for module in _FAMILIES[interface]}
    found = [(check, getattr(sys.modules[check.module], check.name)) for check in REGISTRY if check.module in modules]
    return [_audit(check.name, check.ids, function) for check, function in found]


def _audit(name: str, ids: tuple[str, ...], function: Callable[..., DataFrame]) -> Audit:
    parameters, bases = inspect.signature(function).parameters, bases_of(function)
    uses = tuple(name for name, each in parameters.items() if each.default is not inspect.Parameter.empty)
    names = [*parameters, *(name for basis in bases for name in basis.tables)]
    return Audit(name, ids, function, tuple(dict.fromkeys(name for name in names if name not in uses)), uses, bases)
