"""Access levels of routes and roles."""

from enum import Enum
from functools import lru_cache

from queen.security.authentication import RoleNames


class Access(Enum):
    """Access levels in rising order; each includes the lower ones. ``PUBLIC`` needs no token."""

    PUBLIC = "public"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    ADMIN = "admin"

    def includes(self, needed: "Access") -> bool:
        """Whether this level is at least the other."""
        return _RANKS[self] >= _RANKS[needed]


PUBLIC, READ_ONLY, READ_WRITE, ADMIN = Access

_RANKS = {level: rank for rank, level in enumerate(Access)}


class Levels:
    """The access levels of roles.

    Args:
        names: the role names of the levels in tokens.
    """

    def __init__(self, names: RoleNames) -> None:
        self._levels = {
            names.read_only: Access.READ_ONLY,
            names.read_write: Access.READ_WRITE,
            names.admin: Access.ADMIN,
        }
        self.of = lru_cache(maxsize=1000)(self._of)

    def _of(self, roles: tuple[str, ...]) -> Access:
        """The highest level of some roles; ``PUBLIC`` if none is known."""
        levels = [self._levels.get(role, Access.PUBLIC) for role in roles]
        return max(levels, key=_RANKS.__getitem__, default=Access.PUBLIC)
