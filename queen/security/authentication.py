"""Authentication as the settings say: which tokens are good, and which role may do what."""

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
#: What `deploy/` has in the place of a secret.
_PUBLISHED = "change-me"
#: What is said of a server that asks nobody for a token.
OPEN = "no authentication"
_PUBLIC = (*RSA_ALGORITHMS, *EDWARDS_ALGORITHMS)


class RoleNames(Struct, frozen=True):
    """What tokens call the levels of access."""

    admin: str
    read_write: str
    read_only: str


def role_names(settings: Settings) -> RoleNames:
    """The names of the roles."""
    return RoleNames(settings.jwt_role_admin, settings.jwt_role_read_write, settings.jwt_role_read_only)


def verifier_of(settings: Settings) -> Verifier | None:
    """What verifies tokens; ``None`` without authentication.

    Raises:
        SettingError: the settings name no key for their algorithm, or one that cannot be used or is published.
    """
    if not settings.jwt_enabled:
        return None
    fixed = FixedKeys(
        [
            *([secret_key(settings.jwt_secret)] if settings.jwt_secret else []),
            *([pem_key(settings.jwt_public_key)] if settings.jwt_public_key else []),
        ]
    )
    rules = TokenRules(
        _algorithms(settings, fixed),
        settings.jwt_issuer,
        settings.jwt_audience,
        settings.jwt_clock_skew_s,
        settings.jwt_role_claim,
        settings.jwt_roles_claim,
        settings.jwt_require_expiry,
    )
    if settings.jwt_secret == _PUBLISHED:
        raise SettingError(
            f"JWT_SECRET is {_PUBLISHED!r}, which everybody knows: `openssl rand -hex 32` prints one that nobody does"
        )
    url, timeout_s = settings.jwt_jwks_url, settings.jwt_jwks_timeout_ms / 1000
    if not url:
        return Verifier(rules, fixed)
    return Verifier(rules, KeySet(fixed, lambda: fetch(url, timeout_s), settings.jwt_jwks_refresh_s))


def _algorithms(settings: Settings, fixed: FixedKeys) -> tuple[str, ...]:
    if settings.jwt_jwks_url and settings.jwt_public_key:
        raise SettingError("JWT_JWKS_URL and JWT_PUBLIC_KEY both say which keys sign tokens: give only one of them")
    every = (*SECRET_ALGORITHMS, *_PUBLIC)
    wanted: Sequence[str] = every if settings.jwt_algorithm == "auto" else (settings.jwt_algorithm,)
    usable = tuple(each for each in wanted if _has_key(settings, fixed, each))
    if not usable:
        need = {
            "HS256": "JWT_SECRET",
            "auto": "JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL",
        }.get(settings.jwt_algorithm, f"JWT_JWKS_URL, or a JWT_PUBLIC_KEY for {settings.jwt_algorithm}")
        raise SettingError(f"JWT_ENABLED with JWT_ALGORITHM={settings.jwt_algorithm} needs {need}")
    return usable


def _has_key(settings: Settings, fixed: FixedKeys, algorithm: str) -> bool:
    return fixed.find(algorithm, None) is not None or (bool(settings.jwt_jwks_url) and algorithm in _PUBLIC)


def describe(settings: Settings) -> str:
    """Who may use the server, in a few words."""
    if not settings.jwt_enabled:
        return OPEN
    return f"authentication by tokens (JWT, {settings.jwt_algorithm})"


def warn(settings: Settings) -> None:
    """Logs what is allowed, and should not be done."""
    if not settings.jwt_enabled:
        return
    if 0 < len(settings.jwt_secret.encode()) < _SECRET_BYTES_MIN:
        log.warning(
            "JWT_SECRET is shorter than %d bytes: who has one token can guess it and make others; "
            "`openssl rand -hex 32` prints a good one",
            _SECRET_BYTES_MIN,
        )
    url = urlsplit(settings.jwt_jwks_url)
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        log.warning("JWT_JWKS_URL is not https: who stands between can give this server keys of their own")
