"""AES-256-GCM for payloads (NIST SP 800-38D): keys, key ids, and unique nonces.

A nonce has 96 bits: 64 random ones that a process draws at its start, and a counter of 32 (section 8.2.1, deterministic
construction; after an overflow the process draws again). So nonces of a process cannot collide, and those of two
processes only if they drew the same 64 bits. See docs/adr/0015-payload-encryption.md.
"""

import hashlib
import os
import secrets
from collections.abc import Sequence
from typing import Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from queen.core.errors import DecryptionError, SettingError

_TAG_BYTES = 16
_COUNTER_BYTES, _COUNTER_END = 4, 1 << 32


class Sealed(Struct, frozen=True):
    """An encrypted payload in the database: JSON with bytes in Base64."""

    encrypted: bytes
    iv: bytes
    authTag: bytes  # noqa: N815 - the stored name


_decoder = msgspec.json.Decoder(Sealed)


class Nonces:
    """Generates unique 96-bit nonces; for one thread."""

    def __init__(self) -> None:
        self._draw()
        os.register_at_fork(after_in_child=self._draw)

    def _draw(self) -> None:
        self._prefix, self._count = secrets.token_bytes(8), 0

    def take(self) -> bytes:
        """The next nonce."""
        if self._count == _COUNTER_END:
            self._draw()
        nonce = self._prefix + self._count.to_bytes(_COUNTER_BYTES, "big")
        self._count += 1
        return nonce


def key_id(key: bytes) -> str:
    """The id of a key: 16 hex digits that reveal nothing about it."""
    return hashlib.sha256(b"queen payload key\0" + key).hexdigest()[:16]


def _place(queue: str, partition: str) -> bytes:
    """The associated data of a ciphertext: it cannot be decrypted in another queue or partition."""
    return msgspec.json.encode((queue, partition))


class Keyring:
    """The current key, and older keys for decryption only; 32 bytes each."""

    def __init__(self, current: bytes, older: Sequence[bytes] = ()) -> None:
        self.current_id = key_id(current)
        self._ciphers = {key_id(key): AESGCM(key) for key in (*older, current)}
        self._nonces = Nonces()

    def __contains__(self, name: str) -> bool:
        """Whether it has the key of this id."""
        return name in self._ciphers

    @classmethod
    def from_settings(cls, current: str, older: str) -> Self | None:
        """The keyring of ``QUEEN_ENCRYPTION_KEY`` and ``QUEEN_ENCRYPTION_OLD_KEYS``, in hex; none without a key.

        Raises:
            SettingError: there are old keys, but no current one.
        """
        if not current:
            if older:
                raise SettingError("QUEEN_ENCRYPTION_OLD_KEYS is set, but QUEEN_ENCRYPTION_KEY is not: set both")
            return None
        return cls(bytes.fromhex(current), [bytes.fromhex(key) for key in older.split(",") if key])

    def seal(self, payload: bytes, queue: str, partition: str) -> bytes:
        """The payload, encrypted with the current key, as JSON to store."""
        nonce = self._nonces.take()
        text = self._ciphers[self.current_id].encrypt(nonce, payload, _place(queue, partition))
        return msgspec.json.encode(Sealed(text[:-_TAG_BYTES], nonce, text[-_TAG_BYTES:]))

    def open(self, name: str, sealed: bytes, queue: str, partition: str) -> bytes:
        """Decrypts a payload of this queue and partition with the key of this id.

        Raises:
            DecryptionError: the key is missing, or the stored text was modified.
        """
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise DecryptionError(
                f"The payload is encrypted with the key {name[:16]}, which this server does not have: add it "
                "to QUEEN_ENCRYPTION_OLD_KEYS"
            )
        try:
            parts = _decoder.decode(sealed)
            # Base64 and JSON have many spellings of the same bytes; only one is accepted.
            if len(parts.authTag) == _TAG_BYTES and msgspec.json.encode(parts) == sealed:
                return cipher.decrypt(parts.iv, parts.encrypted + parts.authTag, _place(queue, partition))
        except (msgspec.DecodeError, InvalidTag, ValueError):
            pass
        raise DecryptionError("The encrypted payload is corrupt, or belongs to another message")
