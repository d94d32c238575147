"""Who may use a route: the levels that a token's role is compared with."""

from enum import Enum


class Access(Enum):
    """Levels in rising order; each includes those before it. ``PUBLIC`` needs no token at all."""

    PUBLIC = "public"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    ADMIN = "admin"

    def includes(self, needed: "Access") -> bool:
        """Whether who has this level may use what needs the other."""
        order = list(Access)
        return order.index(self) >= order.index(needed)
