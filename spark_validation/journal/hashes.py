"""How a journal knows a payload: 52 bits of a hash, so that JavaScript can write it as a number."""

import hashlib

_DIGITS = 13


def hash_of(data: bytes) -> int:
    """The number that the first 13 hexadecimal digits of the SHA-256 make."""
    return int(hashlib.sha256(data).hexdigest()[:_DIGITS], 16)
