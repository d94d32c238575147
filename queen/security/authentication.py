"""Authentication from the settings: the verifier of tokens, the access levels of roles, and warnings."""

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from queen.config import Settings

if TYPE_CHECKING:
    from queen.security.tokens import Verifier

log = logging.getLogger("queen.security")

#: RFC 7518, section 3.2: a key for HS256 has at least as many bytes as its hash.
_SECRET_BYTES_MIN = 32
#: Description of a server without authentication.
OPEN = "no authentication"


class RoleNames(Struct, frozen=True):
    """The role names of the access levels in tokens."""

    admin: str
    read_write: str
    read_only: str


def role_names(settings: Settings) -> RoleNames:
    """The names of the roles."""
    return RoleNames(settings.jwt.role_admin, settings.jwt.role_read_write, settings.jwt.role_read_only)


def verifier_of(settings: Settings) -> "Verifier | None":
    """The verifier of tokens; ``None`` without authentication.

    Raises:
        SettingError: there is no key for the algorithm, or the key is invalid or published.
    """
    if not settings.jwt.enabled:
        return None
    from queen.security.verification import from_settings  # noqa: PLC0415 - its imports would be a fifth of each start

    return from_settings(settings)


def describe(settings: Settings) -> str:
    """The authentication in a few words, for the log."""
    if not settings.jwt.enabled:
        return OPEN
    return f"authentication by tokens (JWT, {settings.jwt.algorithm})"


def warn(settings: Settings) -> None:
    """Logs warnings about insecure settings."""
    if not settings.jwt.enabled:
        if settings.security.insecure:
            log.warning(
                "No authentication, and QUEEN_INSECURE is set: anybody who reaches this server has full "
                "access (docs/security.md)"
            )
        if settings.security.cors_origins == ("*",):
            log.warning(
                "No authentication, and QUEEN_CORS_ORIGINS=*: any web page in a browser that reaches this "
                "server has full access (docs/security.md)"
            )
        return
    if 0 < len(settings.jwt.secret.encode()) < _SECRET_BYTES_MIN:
        log.warning(
            "JWT_SECRET is shorter than %d bytes: anybody who has a token can find the secret by brute "
            "force and forge tokens. Create a secret with `openssl rand -hex 32`",
            _SECRET_BYTES_MIN,
        )
    url = urlsplit(settings.jwt.jwks_url)
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        log.warning("JWT_JWKS_URL is not https: an attacker on the network can replace the keys")
