"""Receipt handles: message, delivery and its time, authenticated so that clients can neither invent nor move one."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from msgspec import Struct

from queen.sqs.errors import invalid_handle

_MAC_BYTES = 16
#: An id, a number, a time, and the code.
_BYTES = 16 + 4 + 6 + _MAC_BYTES
_CHARS = 56


class Delivery(Struct, frozen=True):
    """One delivery of a message: the message, how often it had been delivered, and when, in milliseconds since 1970."""

    message_id: UUID
    receive_count: int
    received_ms: int


class Handles:
    """Makes and checks receipt handles.

    Args:
        secret: of all servers of a database.
    """

    def __init__(self, secret: str) -> None:
        # A key of its own: the secret is also that of notifications between servers.
        self._key = hmac.digest(secret.encode(), b"receipt handles of SQS", hashlib.sha256)

    def seal(self, queue: UUID, message_id: UUID, receive_count: int, received_ms: int) -> str:
        """The receipt handle of a delivery from a queue."""
        text = message_id.bytes + receive_count.to_bytes(4) + received_ms.to_bytes(6)
        return urlsafe_b64encode(text + self._mac(queue, text)).decode()

    def open(self, queue: UUID, handle: str) -> Delivery:
        """The delivery of a receipt handle; raises an error if it is not one of this queue."""
        try:
            data = urlsafe_b64decode(handle) if len(handle) == _CHARS and handle.isascii() else b""
        except ValueError:
            data = b""
        text, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if len(data) != _BYTES or not hmac.compare_digest(mac, self._mac(queue, text)):
            raise invalid_handle(handle)
        return Delivery(UUID(bytes=text[:16]), int.from_bytes(text[16:20]), int.from_bytes(text[20:]))

    def _mac(self, queue: UUID, text: bytes) -> bytes:
        return hmac.digest(self._key, queue.bytes + text, hashlib.sha256)[:_MAC_BYTES]
