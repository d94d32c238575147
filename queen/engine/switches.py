"""The switches of the whole installation: kept by PostgreSQL, copied to a flag of the instance that all workers see.

Set and copied under the lock of all appends, so that neither an older copy nor the end of the spool comes between.
"""

from collections.abc import Mapping

from msgspec import Struct

from queen.core.errors import SpoolError
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.spool.spool import MAINTENANCE, POP_MAINTENANCE, SPOOLING

MAINTENANCE_MODE, POP_MAINTENANCE_MODE = "maintenance_mode", "pop_maintenance_mode"
_FLAGS = {MAINTENANCE_MODE: MAINTENANCE, POP_MAINTENANCE_MODE: POP_MAINTENANCE}


class Switches(Struct, frozen=True):
    """What is switched on."""

    maintenance: bool
    pop_maintenance: bool


def known_switches(failover: Failover) -> Switches:
    """The switches as this instance knows them, whether PostgreSQL is there or not."""
    return Switches(failover.maintenance, failover.pop_maintenance)


async def copy_switches(context: Context) -> None:
    """Makes the flags of the instance those of the installation."""
    failover = _failover(context)
    if not _differing(failover, await context.administration.switches()):
        return
    async with failover.held():
        for flag, on in _differing(failover, await context.administration.switches()).items():
            _set(failover, flag, on)


async def set_switch(context: Context, key: str, on: bool) -> None:
    """Sets a switch of the installation; holds for this instance when it returns, for others within a second."""
    failover = _failover(context)
    async with failover.held():
        await context.administration.set_switch(key, on)
        _set(failover, _FLAGS[key], on)


async def maintenance_is_on(context: Context) -> bool:
    """Whether PostgreSQL says that pushes are to be spooled."""
    return (await context.administration.switches()).get(MAINTENANCE_MODE, False)


def _failover(context: Context) -> Failover:
    if context.failover is None:
        raise SpoolError("This server has no spool")
    return context.failover


def _differing(failover: Failover, switches: Mapping[str, bool]) -> dict[str, bool]:
    wanted = {flag: switches.get(key, False) for key, flag in _FLAGS.items()}
    return {flag: on for flag, on in wanted.items() if on != failover.spool.has(flag)}


def _set(failover: Failover, flag: str, on: bool) -> None:
    failover.spool.set_flag(flag, on)
    if flag == MAINTENANCE and on:
        failover.spool.set_flag(SPOOLING, on)
