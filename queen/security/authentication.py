"""Authentication from the settings: valid tokens, and the access levels of roles."""

import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from queen.config import Settings
from queen.core.errors import SettingError
from queen.security.token_keys import (
    EDWARDS_ALGORITHMS,
    RSA_ALGORITHMS,
    SECRET_ALGORITHMS,
    FixedKeys,
    KeySet,
    fetch,
    pem_key,
    secret_key,
)
from queen.security.tokens import TokenRules, Verifier

log = logging.getLogger("queen.security")

#: RFC 7518, section 3.2: a key for HS256 has at least as many bytes as its hash.
_SECRET_BYTES_MIN = 32
#: The placeholder for a secret in `deploy/`.
_PUBLISHED = "change-me"
#: Description of a server without authentication.
OPEN = "no authentication"
_PUBLIC = (*RSA_ALGORITHMS, *EDWARDS_ALGORITHMS)


class RoleNames(Struct, frozen=True):
    """The role names of the access levels in tokens."""

    admin: str
    read_write: str
    read_only: str


def role_names(settings: Settings) -> RoleNames:
    """The names of the roles."""
    return RoleNames(settings.jwt.role_admin, settings.jwt.role_read_write, settings.jwt.role_read_only)


def verifier_of(settings: Settings) -> Verifier | None:
    """The verifier of tokens; ``None`` without authentication.

    Raises:
        SettingError: there is no key for the algorithm, or the key is invalid or published.
    """
    if not settings.jwt.enabled:
        return None
    fixed = FixedKeys(
        [
            *([secret_key(settings.jwt.secret)] if settings.jwt.secret else []),
            *([pem_key(settings.jwt.public_key)] if settings.jwt.public_key else []),
        ]
    )
    rules = TokenRules(
        _algorithms(settings, fixed),
        settings.jwt.issuer,
        settings.jwt.audience,
        settings.jwt.clock_skew_s,
        settings.jwt.role_claim,
        settings.jwt.roles_claim,
        settings.jwt.require_expiry,
    )
    if settings.jwt.secret == _PUBLISHED:
        raise SettingError(
            f"JWT_SECRET is {_PUBLISHED!r}, a published example. Create a secret with `openssl rand -hex 32`"
        )
    url, timeout_s = settings.jwt.jwks_url, settings.jwt.jwks_timeout_ms / 1000
    if not url:
        return Verifier(rules, fixed)
    return Verifier(rules, KeySet(fixed, lambda: fetch(url, timeout_s), settings.jwt.jwks_refresh_s))


def _algorithms(settings: Settings, fixed: FixedKeys) -> tuple[str, ...]:
    if settings.jwt.jwks_url and settings.jwt.public_key:
        raise SettingError("JWT_JWKS_URL and JWT_PUBLIC_KEY are both set: give only one of them")
    every = (*SECRET_ALGORITHMS, *_PUBLIC)
    wanted: Sequence[str] = every if settings.jwt.algorithm == "auto" else (settings.jwt.algorithm,)
    usable = tuple(each for each in wanted if _has_key(settings, fixed, each))
    if not usable:
        need = {
            "HS256": "JWT_SECRET",
            "auto": "JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL",
        }.get(settings.jwt.algorithm, f"JWT_JWKS_URL, or a JWT_PUBLIC_KEY for {settings.jwt.algorithm}")
        raise SettingError(f"JWT_ENABLED with JWT_ALGORITHM={settings.jwt.algorithm} needs {need}")
    return usable


def _has_key(settings: Settings, fixed: FixedKeys, algorithm: str) -> bool:
    return fixed.find(algorithm, None) is not None or (bool(settings.jwt.jwks_url) and algorithm in _PUBLIC)


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
