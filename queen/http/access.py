"""Who may use a route: the levels that a token's role is compared with."""

from enum import Enum
from functools import lru_cache

from queen.security.authentication import RoleNames


class Access(Enum):
    """Levels in rising order; each includes those before it. ``PUBLIC`` needs no token at all."""

    PUBLIC = "public"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    ADMIN = "admin"

    def includes(self, needed: "Access") -> bool:
        """Whether who has this level may use what needs the other."""
        return _RANKS[self] >= _RANKS[needed]


_RANKS = {level: rank for rank, level in enumerate(Access)}


class Levels:
    """What roles may do.

    Args:
        names: what tokens call the levels.
    """

    def __init__(self, names: RoleNames) -> None:
        self._levels = {
            names.read_only: Access.READ_ONLY,
            names.read_write: Access.READ_WRITE,
            names.admin: Access.ADMIN,
        }
        self.of = lru_cache(maxsize=1000)(self._of)

    def _of(self, roles: tuple[str, ...]) -> Access:
        """The highest level of some roles; that of nobody if no role is known."""
        levels = [self._levels.get(role, Access.PUBLIC) for role in roles]
        return max(levels, key=_RANKS.__getitem__, default=Access.PUBLIC)
