"""The hash of a payload in journals: 52 bits, so that JavaScript can write it as a number."""

import hashlib

_DIGITS = 13


def hash_of(data: bytes) -> int:
    """The first 13 hexadecimal digits of the SHA-256, as a number."""
    return int(hashlib.sha256(data).hexdigest()[:_DIGITS], 16)
