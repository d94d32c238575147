"""Keys for the signatures of tokens: a secret, a PEM, or a JSON Web Key Set (RFC 7517), which is fetched regularly.

A key is used only with the algorithms of its type, whatever a token says: a public RSA key must not serve as a secret.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import httpx
import jwt
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from msgspec import Struct

from queen.core.errors import SettingError

log = logging.getLogger("queen.security")

SECRET_ALGORITHMS = ("HS256",)
RSA_ALGORITHMS = ("RS256", "RS384", "RS512")
EDWARDS_ALGORITHMS = ("EdDSA",)

#: Pause after a fetch on demand, so that unknown key ids cause no load at the issuer.
PAUSE_S = 10.0


class Key(Struct, frozen=True):
    """One key, with the algorithms that it may be used with; ``kid`` is its id in a key set."""

    algorithms: tuple[str, ...]
    material: Any
    kid: str | None = None


class Keys(Protocol):
    """A source of keys."""

    @property
    def ready(self) -> bool:
        """Whether there are keys yet."""

    def find(self, algorithm: str, kid: str | None) -> Key | None:
        """The key for the header of a token."""

    async def refresh(self) -> bool:
        """Fetches new keys, if there may be some; true if a fetch was made."""

    async def start(self, changed: Callable[[], None]) -> None:
        """Starts to refresh the keys; calls ``changed`` when they change."""

    async def stop(self) -> None:
        """Stops refreshing the keys."""


def algorithms_of(material: object) -> tuple[str, ...]:
    """The algorithms of a public key; none for unsupported types."""
    if isinstance(material, RSAPublicKey):
        return RSA_ALGORITHMS
    return EDWARDS_ALGORITHMS if isinstance(material, Ed25519PublicKey | Ed448PublicKey) else ()


def secret_key(secret: str) -> Key:
    """A secret that issuer and server share."""
    return Key(SECRET_ALGORITHMS, secret.encode())


def pem_key(text: str) -> Key:
    """A public key or certificate in PEM: the text itself, or the path of a file.

    Raises:
        SettingError: it cannot be read, or is not a public RSA, Ed25519 or Ed448 key.
    """
    advice = "JWT_PUBLIC_KEY must be a public key or a certificate in PEM, or the path of a file with one"
    try:
        pem = text.replace("\\n", "\n").encode() if "-----BEGIN" in text else Path(text).read_bytes()
        if b"BEGIN CERTIFICATE" in pem:
            material: object = x509.load_pem_x509_certificate(pem).public_key()
        else:
            material = load_pem_public_key(pem)
    except OSError as problem:
        raise SettingError(f"{advice}: {problem.strerror}") from None
    except ValueError:
        raise SettingError(advice) from None
    if not (algorithms := algorithms_of(material)):
        raise SettingError(f"{advice}. Supported types are RSA, Ed25519 and Ed448")
    return Key(algorithms, material)


def keys_of_set(body: bytes) -> list[Key]:
    """The usable keys of a key set: public keys for signatures, of supported types.

    Raises:
        ValueError: it is not a key set.
    """
    try:
        described = msgspec.json.decode(body)
        members = [each for each in described["keys"] if isinstance(each, dict)]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, KeyError):
        raise ValueError("not a JSON Web Key Set") from None
    return [key for member in members if member.get("use", "sig") == "sig" and (key := _key_of_set(member)) is not None]


def _key_of_set(member: dict[str, Any]) -> Key | None:
    if member.get("kty") not in ("RSA", "OKP"):
        return None
    named, kid = member.get("alg"), member.get("kid")
    try:
        # The type of the key determines its algorithms; ``alg`` may only restrict them.
        material = jwt.PyJWK({name: value for name, value in member.items() if name != "alg"}).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    algorithms = tuple(each for each in algorithms_of(material) if named in (None, each))
    return Key(algorithms, material, kid if isinstance(kid, str) else None) if algorithms else None


class FixedKeys:
    """Keys that never change."""

    ready = True

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = list(keys)

    def find(self, algorithm: str, kid: str | None) -> Key | None:  # noqa: ARG002 - of the protocol
        """The key for an algorithm; these keys have no ids."""
        return next((key for key in self._keys if algorithm in key.algorithms), None)

    async def refresh(self) -> bool:
        """There are never new keys."""
        return False

    async def start(self, changed: Callable[[], None]) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""


def fetch(url: str, timeout_s: float) -> bytes:
    """A key set over HTTP; raises ``httpx.HTTPError`` and ``httpx.InvalidURL``."""
    return httpx.get(url, timeout=timeout_s).raise_for_status().content


class KeySet:
    """A key set that is fetched from its issuer: regularly, and when a token has an unknown key id.

    A thread fetches and parses it; the loop of the requests only swaps the keys. If the issuer is unreachable, the
    current keys stay. A fetched set replaces them, even if it is empty.

    Args:
        fixed: additional keys, for other algorithms.
        load: fetches the body of the set; runs in a thread.
        every_s: seconds between two fetches.
        pause_s: minimum seconds between two fetches.
    """

    def __init__(self, fixed: FixedKeys, load: Callable[[], bytes], every_s: float, pause_s: float = PAUSE_S) -> None:
        self._fixed, self._load, self._every_s, self._pause_s = fixed, load, every_s, pause_s
        self._keys: list[Key] | None = None
        self._changed: Callable[[], None] = lambda: None
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._routine: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the set was ever fetched."""
        return self._keys is not None

    def find(self, algorithm: str, kid: str | None) -> Key | None:
        """The key by its id; without an id the first one for the algorithm."""
        fitting = [key for key in self._keys or () if algorithm in key.algorithms and kid in (None, key.kid)]
        return fitting[0] if fitting else self._fixed.find(algorithm, kid)

    async def refresh(self) -> bool:
        """Fetches the set, unless it was just fetched; concurrent calls share one fetch."""
        now = asyncio.get_running_loop().time()
        if self._looking is None:
            if self._looked_at is not None and now - self._looked_at < self._pause_s:
                return False
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)
        return True

    async def start(self, changed: Callable[[], None]) -> None:
        """Starts to fetch, without waiting for the first set."""
        self._changed = changed
        self._routine = asyncio.create_task(self._look_again_and_again())

    async def stop(self) -> None:
        """Stops refreshing the keys."""
        tasks = [task for task in (self._routine, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_again_and_again(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(self._every_s if self.ready else self._pause_s)

    async def _look(self) -> None:
        try:
            keys = await asyncio.to_thread(lambda: keys_of_set(self._load()))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as problem:
            log.warning("The keys of JWT_JWKS_URL cannot be fetched: %s", problem)
        else:
            if not keys:
                log.warning(
                    "JWT_JWKS_URL has no usable key (RSA, Ed25519 or Ed448, for signatures): tokens of its "
                    "issuer are no longer accepted"
                )
            self._keys = keys
            self._changed()
        finally:
            self._looked_at = asyncio.get_running_loop().time()
            self._looking = None
