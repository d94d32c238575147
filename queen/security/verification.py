"""The verifier of tokens from the settings; imported only by servers with authentication."""

from collections.abc import Sequence

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

#: The placeholder for a secret in `deploy/`.
_PUBLISHED = "change-me"
_PUBLIC = (*RSA_ALGORITHMS, *EDWARDS_ALGORITHMS)


def from_settings(settings: Settings) -> Verifier:
    """The verifier of tokens.

    Raises:
        SettingError: there is no key for the algorithm, or the key is invalid or published.
    """
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
