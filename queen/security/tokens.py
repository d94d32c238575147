"""Verification of JSON Web Tokens (RFC 7519, with the advice of RFC 8725)."""

import hashlib
import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt
from jwt.warnings import InsecureKeyLengthWarning
from msgspec import Struct

from queen.core.errors import KeysUnavailableError, UnauthorizedError
from queen.core.limits import NAME_CHARS_MAX
from queen.security.identity import Identity
from queen.security.token_keys import Key, Keys

# Warned about once, at the start (queen.security.authentication).
warnings.simplefilter("ignore", InsecureKeyLengthWarning)

#: Maximum of characters of a token; longer ones do not occur in practice.
TOKEN_CHARS_MAX = 16_384
#: Maximum of verified tokens in the cache of a worker.
REMEMBERED_MAX = 10_000

# Without padding, so that a token has only one spelling.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class TokenRules(Struct, frozen=True):
    """The requirements for tokens.

    Attributes:
        algorithms: accepted signature algorithms.
        issuer, audience: required values of ``iss`` and ``aud``; empty: not checked.
        leeway_s: accepted difference between clocks.
        role_claim: the claim with a role as string; a path with dots if it is nested.
        roles_claim: the claim with a list of roles, likewise.
        needs_expiry: whether a token without ``exp`` is refused.
    """

    algorithms: Sequence[str]
    issuer: str = ""
    audience: str = ""
    leeway_s: float = 30
    role_claim: str = "role"
    roles_claim: str = "roles"
    needs_expiry: bool = False


class _UnknownKeyError(UnauthorizedError):
    """There is no key with the id of the token; there may be a new one."""


class Verifier:
    """Verifies tokens, and caches valid ones by hash until they expire.

    Args:
        rules: the requirements for tokens.
        keys: for the signatures.
        clock: seconds since 1970.
        remembered_max: maximum of cached tokens; the least recently used one is removed first.
    """

    def __init__(
        self,
        rules: TokenRules,
        keys: Keys,
        clock: Callable[[], float] = time.time,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        self._rules, self._keys, self._clock, self._remembered_max = rules, keys, clock, remembered_max
        self._remembered: OrderedDict[bytes, Identity] = OrderedDict()

    @property
    def remembered(self) -> int:
        """The number of cached tokens."""
        return len(self._remembered)

    async def start(self) -> None:
        """Starts to refresh the keys."""
        await self._keys.start(self._remembered.clear)

    async def stop(self) -> None:
        """Stops refreshing the keys."""
        await self._keys.stop()

    async def verify(self, token: str) -> Identity:
        """The identity of a token.

        Raises:
            UnauthorizedError: it is invalid; the text has the reason.
            KeysUnavailableError: there are no keys yet.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None and self._clock() < known.expires_at:
            self._remembered.move_to_end(digest)
            return known
        try:
            identity = self._check(token)
        except _UnknownKeyError:
            looked = await self._keys.refresh()
            if not self._keys.ready:
                raise KeysUnavailableError(
                    "The keys of the token issuer cannot be fetched at the moment. Try again later"
                ) from None
            if not looked:
                raise
            identity = self._check(token)
        self._remember(digest, identity)
        return identity

    def _remember(self, digest: bytes, identity: Identity) -> None:
        self._remembered[digest] = identity
        if len(self._remembered) > self._remembered_max:
            self._remembered.popitem(last=False)

    def _check(self, token: str) -> Identity:
        rules = self._rules
        if len(token) > TOKEN_CHARS_MAX:
            raise UnauthorizedError(f"Token decode error: longer than {TOKEN_CHARS_MAX} characters")
        if not _COMPACT.fullmatch(token):
            raise UnauthorizedError("Token decode error: not three parts of base64url")
        algorithm = ""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = str(header.get("alg"))
            claims = jwt.decode(
                token,
                self._key(algorithm, header.get("kid")).material,
                algorithms=[algorithm],
                audience=rules.audience or None,
                issuer=rules.issuer or None,
                leeway=rules.leeway_s,
                options={
                    "verify_aud": bool(rules.audience),
                    "verify_iss": bool(rules.issuer),
                    "require": ["exp"] if rules.needs_expiry else [],
                },
            )
        except jwt.PyJWTError as problem:
            raise UnauthorizedError(_text(problem, algorithm)) from None
        return Identity(_subject(claims), _roles(claims, rules), _expiry(claims, rules))

    def _key(self, algorithm: str, kid: str | None) -> Key:
        """The key of a token. Its algorithm must be one of those in the settings."""
        if algorithm not in self._rules.algorithms:
            expected = " or ".join(self._rules.algorithms)
            raise UnauthorizedError(f"Token uses {_readable(algorithm[:20])}, expected {expected}")
        key = self._keys.find(algorithm, kid)
        if key is None:
            raise _UnknownKeyError(f"Unknown key ID: {_readable(str(kid)[:100])}")
        return key


#: Error texts for the caller.
_TEXTS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "Token has expired",
    jwt.ImmatureSignatureError: "Token is not valid yet",
    jwt.InvalidAudienceError: "Token is for another audience",
    jwt.InvalidIssuerError: "Token is from another issuer",
}


def _text(problem: jwt.PyJWTError, algorithm: str) -> str:
    if isinstance(problem, jwt.InvalidSignatureError):
        return f"{algorithm} validation error: invalid signature"
    return _TEXTS.get(type(problem), f"Token decode error: {_readable(str(problem))}")


def _subject(claims: Mapping[str, Any]) -> str | None:
    subject: str | None = claims.get("sub")
    if subject and (len(subject) > NAME_CHARS_MAX or "\0" in subject or _readable(subject) != subject):
        raise UnauthorizedError(
            f"Token decode error: sub has NUL, an unpaired surrogate, or more than {NAME_CHARS_MAX} characters"
        )
    return subject or None


def _roles(claims: Mapping[str, Any], rules: TokenRules) -> tuple[str, ...]:
    one, several = _claim(claims, rules.role_claim), _claim(claims, rules.roles_claim)
    # Each claim may have a string or a list: issuers differ.
    found = [*(one if isinstance(one, list) else [one]), *(several if isinstance(several, list) else [several])]
    return tuple(role for role in found if isinstance(role, str))


def _claim(claims: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - whatever the issuer has put there
    """The claim with that name, or else at that path: names of claims may have dots, too."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _readable(text: str) -> str:
    """The text for a client: JSON can have unpaired surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _expiry(claims: Mapping[str, Any], rules: TokenRules) -> float:
    return int(claims["exp"]) + rules.leeway_s if "exp" in claims else float("inf")
