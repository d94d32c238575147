"""W3C trace contexts of messages: stored beside the payload at the push, and read at the pop.

A context is stored as the text of the header ``traceparent`` (https://www.w3.org/TR/trace-context/). A header of that
name, which a producer gives to a message itself, goes before that of the request. Only telemetry calls this, so
messages without a context and servers without telemetry have no cost.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from queen.log.requests import Cycle, PartitionBatch, Popped, Push, TimerChange, Transaction
from queen.log.segment import Entry, decode_entries

Pushing = TypeVar("Pushing", Push, Cycle)

_text = msgspec.json.Decoder(str)
#: The form of W3C.
CONTEXT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def stamp(request: Pushing, traceparent: str) -> Pushing:
    """The request with the context added to each message that it pushes."""
    if isinstance(request, Push):
        return structs.replace(request, batches=[_stamp_batch(batch, traceparent) for batch in request.batches])
    return structs.replace(request, push=stamp(request.push, traceparent))


def _stamp_batch(batch: PartitionBatch, traceparent: str) -> PartitionBatch:
    head = _head(traceparent)
    entries, begin = [], 0
    for length in batch.lengths:
        entries.append(head + batch.body[begin + 1 : begin + length - 1])
        begin += length
    more = len(head) - 1
    return structs.replace(batch, body=b",".join(entries), lengths=[length + more for length in batch.lengths])


def _head(traceparent: str) -> bytes:
    """First in the object of a message, so that the object need not be decoded."""
    return b'{"traceparent":"%b",' % traceparent.encode()


def stamp_timers(changes: Sequence[TimerChange], traceparent: str) -> list[TimerChange]:
    """The changes of timers with the context added to each message."""
    head = _head(traceparent)
    return [
        structs.replace(change, message=head + change.message[1:]) if change.message else change for change in changes
    ]


def stamp_transaction(request: Transaction, traceparent: str) -> Transaction:
    """The transaction with the context added to each message that it pushes, at once or for a time."""
    push, timers = stamp(request.push, traceparent), stamp_timers(request.timers, traceparent)
    return structs.replace(request, push=push, timers=timers)


class Delivered(msgspec.Struct, frozen=True):
    """The messages of a pop: their number, and their number per trace context."""

    messages: int
    contexts: "Counter[str]"


def delivered(popped: Popped) -> Delivered:
    """Counts the messages of a pop, and reads their contexts."""
    messages, contexts = 0, Counter[str]()
    for claim in popped.claims:
        for piece in claim.slices:
            entries = decode_entries(piece.data, piece.ends, piece.start)
            for offset, entry in enumerate(entries, piece.first):
                if offset > claim.upto:
                    break
                if offset in claim.skip:
                    continue
                messages += 1
                if isinstance(entry, Entry) and (context := _context(entry)):
                    contexts[context] += 1
    return Delivered(messages, contexts)


def _context(entry: Entry) -> str | None:
    """The context of a message; ``None`` if it has none."""
    if b"traceparent" in bytes(entry.headers):
        own = entry.headers_map().get("traceparent", "")
        if CONTEXT.fullmatch(own):
            return own
    return _text.decode(entry.traceparent) if entry.traceparent else None
