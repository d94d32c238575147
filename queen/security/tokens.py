"""Who sends a request, as its JSON Web Token says (RFC 7519, with the advice of RFC 8725)."""

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
from queen.security.token_keys import Key, Keys

# Said once, at the start (queen.security.authentication).
warnings.simplefilter("ignore", InsecureKeyLengthWarning)

#: Characters of a token; what is longer was not made by an issuer in its right mind.
TOKEN_CHARS_MAX = 16_384
#: Tokens that a worker remembers as verified.
REMEMBERED_MAX = 10_000

# Without padding: a token has one spelling, or a tampered one would be as good as its original.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class Identity(Struct, frozen=True):
    """Who sends a request.

    Attributes:
        subject: the claim ``sub``.
        roles: what the claims of roles say, as it stands there.
        expires_at: seconds since 1970 until which the token is good, leeway included.
    """

    subject: str | None
    roles: tuple[str, ...]
    expires_at: float = float("inf")


class TokenRules(Struct, frozen=True):
    """What a token must be.

    Attributes:
        algorithms: those that may sign it.
        issuer, audience: what ``iss`` and ``aud`` must say; empty: anything, or nothing.
        leeway_s: how far clocks may be apart.
        role_claim: the claim that holds a role as text; a path with dots where it lies below others.
        roles_claim: the claim that holds a list of roles, likewise.
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
    """No key has the name that the token gives; there may be a new one."""


class Verifier:
    """Verifies tokens, and remembers those that were good by their hash until they expire.

    Args:
        rules: what a token must be.
        keys: what it may be signed with.
        clock: seconds since 1970.
        remembered_max: tokens that are remembered; the one that was not seen for longest goes first.
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
        """Tokens that are remembered as good."""
        return len(self._remembered)

    async def start(self) -> None:
        """Begins to keep the keys up to date."""
        await self._keys.start(self._remembered.clear)

    async def stop(self) -> None:
        """Ends that."""
        await self._keys.stop()

    async def verify(self, token: str) -> Identity:
        """Who a token speaks for.

        Raises:
            UnauthorizedError: it proves nothing; the text says why.
            KeysUnavailableError: there are no keys yet to check it with.
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
                raise KeysUnavailableError("The keys of the issuer cannot be had at the moment; try again") from None
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
        """The key of a token. What the token says of its algorithm only chooses among those of the settings."""
        if algorithm not in self._rules.algorithms:
            expected = " or ".join(self._rules.algorithms)
            raise UnauthorizedError(f"Token uses {_readable(algorithm[:20])}, expected {expected}")
        key = self._keys.find(algorithm, kid)
        if key is None:
            raise _UnknownKeyError(f"Unknown key ID: {_readable(str(kid)[:100])}")
        return key


#: What was wrong, for the sender.
_TEXTS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "Token has expired",
    jwt.ImmatureSignatureError: "Token is not valid yet",
    jwt.InvalidAudienceError: "Token is for another audience",
    jwt.InvalidIssuerError: "Token is of another issuer",
}


def _text(problem: jwt.PyJWTError, algorithm: str) -> str:
    if isinstance(problem, jwt.InvalidSignatureError):
        return f"{algorithm} validation error: invalid signature"
    return _TEXTS.get(type(problem), f"Token decode error: {_readable(str(problem))}")


def _subject(claims: Mapping[str, Any]) -> str | None:
    subject: str | None = claims.get("sub")
    if subject and (len(subject) > NAME_CHARS_MAX or "\0" in subject or _readable(subject) != subject):
        raise UnauthorizedError(
            f"Token decode error: sub has NUL, half of a surrogate pair, or more than {NAME_CHARS_MAX} characters"
        )
    return subject or None


def _roles(claims: Mapping[str, Any], rules: TokenRules) -> tuple[str, ...]:
    one, several = _claim(claims, rules.role_claim), _claim(claims, rules.roles_claim)
    # Either may hold either: issuers differ.
    found = [*(one if isinstance(one, list) else [one]), *(several if isinstance(several, list) else [several])]
    return tuple(role for role in found if isinstance(role, str))


def _claim(claims: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - whatever the issuer has put there
    """The claim of that name, else what lies below claims at a path: names of claims may have dots too."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _readable(text: str) -> str:
    """What a client can be told: JSON can name half of a surrogate pair, which UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def _expiry(claims: Mapping[str, Any], rules: TokenRules) -> float:
    return int(claims["exp"]) + rules.leeway_s if "exp" in claims else float("inf")
