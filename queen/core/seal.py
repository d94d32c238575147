"""Authenticates notifications: a message authentication code over time and content (RFC 2104, HMAC with SHA-256).

A sealed packet is valid for a short time only, so that a recorded one cannot be replayed later; a replay within that
time is ignored, because packets are numbered. The clocks of instances must agree within the window. Pure.
"""

import hashlib
import hmac
import re

#: Maximum difference between the time of a seal and ours, in either direction.
WINDOW_MS = 30_000

_MAGIC = b"QN1"
_TIME_BYTES, _MAC_BYTES = 8, 32
_HEADER = re.compile(r"t=(\d{1,15}),mac=([0-9a-f]{64})", re.ASCII)


def _mac(secret: bytes, now_ms: int, content: bytes) -> bytes:
    return hmac.digest(secret, _MAGIC + now_ms.to_bytes(_TIME_BYTES) + content, hashlib.sha256)


def _is_good(secret: bytes, sealed_ms: int, mac: bytes, content: bytes, now_ms: int) -> bool:
    return hmac.compare_digest(mac, _mac(secret, sealed_ms, content)) and _is_recent(sealed_ms, now_ms)


def _is_recent(sealed_ms: int, now_ms: int) -> bool:
    return abs(now_ms - sealed_ms) <= WINDOW_MS


def seal(secret: bytes, content: bytes, now_ms: int) -> bytes:
    """A datagram with the content."""
    return _MAGIC + now_ms.to_bytes(_TIME_BYTES) + _mac(secret, now_ms, content) + content


def unseal(secret: bytes, datagram: bytes, now_ms: int) -> bytes | None:
    """The content of a datagram; ``None`` if it was forged, damaged, or sealed too long ago."""
    head = len(_MAGIC) + _TIME_BYTES
    if not datagram.startswith(_MAGIC) or len(datagram) < head + _MAC_BYTES:
        return None
    sealed_ms = int.from_bytes(datagram[len(_MAGIC) : head])
    mac, content = datagram[head : head + _MAC_BYTES], datagram[head + _MAC_BYTES :]
    return content if _is_good(secret, sealed_ms, mac, content, now_ms) else None


def signature(secret: bytes, content: bytes, now_ms: int) -> str:
    """The value of the header ``Queen-Signature`` for a body."""
    return f"t={now_ms},mac={_mac(secret, now_ms, content).hex()}"


def may_be_signed(header: str, now_ms: int) -> bool:
    """Whether a header can be a valid signature of some body: it has the right form, and is not too old."""
    match = _HEADER.fullmatch(header)
    return match is not None and _is_recent(int(match[1]), now_ms)


def is_signed(secret: bytes, header: str, content: bytes, now_ms: int) -> bool:
    """Whether a header is a valid signature of a body."""
    match = _HEADER.fullmatch(header)
    return match is not None and _is_good(secret, int(match[1]), bytes.fromhex(match[2]), content, now_ms)
