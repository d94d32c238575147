"""The message, the same for both sides."""

import time

import msgspec
from msgspec import Struct

now = time.perf_counter_ns
_PAD = "x" * 60


class Payload(Struct):
    """A message of about 100 bytes: its number, and when it was due."""

    at: int
    id: int


def body_of(number: int, due: int) -> bytes:
    """A payload as JSON."""
    return b'{"at":%d,"id":%d,"pad":"%b"}' % (due, number, _PAD.encode())


decode = msgspec.json.Decoder(Payload).decode
