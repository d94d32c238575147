"""An issuer of tokens, good ones and all the bad ones that somebody might try."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

SECRET = "a secret of the tests, longer than its hash"
ISSUER, AUDIENCE = "https://issuer.test", "queen"
#: Above the leeway of every test.
LONG_S = 3600


@cache
def rsa_key(name: str = "") -> rsa.RSAPrivateKey:
    """A key of that name; it takes a moment to make."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def edwards_key(name: str = "") -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def pem(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> str:
    """The public half."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def jwk(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, **members: Any) -> dict[str, Any]:
    """The public half as a member of a key set."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.OKPAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), **members}


def claims(role: str | None = "admin", **changes: Any) -> dict[str, Any]:
    """Claims of a good token; ``None`` takes one away."""
    now = int(time.time())
    good = {"sub": "alice", "role": role, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + LONG_S}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def signed(body: Mapping[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(dict(body), key, algorithm, headers=headers or None)


def token(role: str | None = "admin", **changes: Any) -> str:
    """A token as it should be, but for the claims that are named."""
    return signed(claims(role, **changes))


def encoded(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def unsigned(body: Mapping[str, Any], algorithm: str = "none") -> str:
    return f"{encoded({'alg': algorithm, 'typ': 'JWT'})}.{encoded(dict(body))}."


def confused(body: Mapping[str, Any], public_key: str) -> str:
    """Signed by HMAC with what everybody may know: the public key of the issuer."""
    head = f"{encoded({'alg': 'HS256', 'typ': 'JWT'})}.{encoded(dict(body))}"
    return f"{head}.{encoded(hmac.new(public_key.encode(), head.encode(), hashlib.sha256).digest())}"


def bad_tokens(role: str = "admin") -> dict[str, str]:
    """Tokens that prove nothing, by what is wrong, for a server that takes HS256 and RS256."""
    now, good = int(time.time()), claims(role)
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    head, body, signature = signed(good).split(".")
    return {
        "not a token": "let-me-in",
        "no signature": f"{head}.{body}",
        "an empty signature": f"{head}.{body}.",
        "alg none": unsigned(good),
        "alg None": unsigned(good, "None"),
        "alg none with a signature": f"{unsigned(good)}{signature}",
        "another secret": signed(good, SECRET[::-1]),
        "another key": signed(good, stranger, "RS256"),
        "algorithm confusion": confused(good, pem(rsa_key())),
        "algorithm confusion without a line's end": confused(good, pem(rsa_key()).strip()),
        "an algorithm that is not allowed": signed(good, SECRET * 2, "HS512"),
        "another body": f"{head}.{encoded(claims(role, sub='mallory'))}.{signature}",
        "expired": signed(claims(role, exp=now - LONG_S)),
        "not yet valid": signed(claims(role, nbf=now + LONG_S)),
        "issued in the future": signed(claims(role, iat=now + LONG_S)),
        "another audience": signed(claims(role, aud="others")),
        "no audience": signed(claims(role, aud=None)),
        "another issuer": signed(claims(role, iss="https://elsewhere.test")),
        "no issuer": signed(claims(role, iss=None)),
        "a critical extension": signed(good, SECRET, "HS256", crit=["exp2"], exp2=1),
    }
