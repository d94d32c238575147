"""The switches of the whole installation. PostgreSQL keeps them; each instance has a copy as a flag for its workers.

They are set and copied under the lock of all appends, so that an older copy or the end of the spool cannot interfere.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from queen.core.errors import SpoolError
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.spool.spool import MAINTENANCE, POP_MAINTENANCE, SPOOLING

MAINTENANCE_MODE, POP_MAINTENANCE_MODE = "maintenance_mode", "pop_maintenance_mode"
_FLAGS = {MAINTENANCE_MODE: MAINTENANCE, POP_MAINTENANCE_MODE: POP_MAINTENANCE}


class Switches(Struct, frozen=True):
    """Which switches are on."""

    maintenance: bool
    pop_maintenance: bool


def known_switches(failover: Failover) -> Switches:
    """The switches as this instance knows them, also while PostgreSQL is unavailable."""
    return Switches(failover.maintenance, failover.pop_maintenance)


def known_to_any(failovers: Sequence[Failover]) -> Switches:
    """The switches of an installation over several databases: on, as soon as they are for one of them."""
    known = [known_switches(failover) for failover in failovers]
    return Switches(any(each.maintenance for each in known), any(each.pop_maintenance for each in known))


async def copy_switches(context: Context) -> None:
    """Copies the switches of the installation to the flags of the instance."""
    failover = failover_of(context)
    if not _differing(failover, await context.administration.switches()):
        return
    async with failover.held():
        for flag, on in _differing(failover, await context.administration.switches()).items():
            _set(failover, flag, on)


async def set_switch(context: Context, key: str, on: bool) -> None:
    """Sets a switch; it takes effect in this instance before this returns, in others within a second."""
    failover = failover_of(context)
    async with failover.held():
        await context.administration.set_switch(key, on)
        _set(failover, _FLAGS[key], on)


async def maintenance_is_on(context: Context) -> bool:
    """Whether maintenance is on according to PostgreSQL, so that pushes are spooled."""
    return (await context.administration.switches()).get(MAINTENANCE_MODE, False)


def failover_of(context: Context) -> Failover:
    """What pushes go to while PostgreSQL is unavailable; raises SpoolError if the server has no spool."""
    if context.failover is None:
        raise SpoolError("This server has no spool")
    return context.failover


def failovers_of(context: Context) -> list[Failover]:
    """The same for each database."""
    return [failover_of(each) for _, each in context.named()]


def _differing(failover: Failover, switches: Mapping[str, bool]) -> dict[str, bool]:
    wanted = {flag: switches.get(key, False) for key, flag in _FLAGS.items()}
    return {flag: on for flag, on in wanted.items() if on != failover.spool.has(flag)}


def _set(failover: Failover, flag: str, on: bool) -> None:
    failover.spool.set_flag(flag, on)
    if flag == MAINTENANCE and on:
        failover.spool.set_flag(SPOOLING, on)
