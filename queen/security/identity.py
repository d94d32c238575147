"""Who calls, once a token or a signature has said so."""

from msgspec import Struct


class Identity(Struct, frozen=True):
    """The caller of a request.

    Attributes:
        subject: the claim ``sub``.
        roles: the values of the role claims.
        expires_at: expiry of the token in seconds since 1970, including the leeway.
    """

    subject: str | None
    roles: tuple[str, ...]
    expires_at: float = float("inf")
