"""W3C trace contexts of messages: written beside a payload on its way in, found again on its way out.

A context is kept as the text of the header ``traceparent`` (https://www.w3.org/TR/trace-context/). Only telemetry calls
this, so that messages without a context, and servers without telemetry, pay nothing.
"""

from collections import Counter
from typing import TypeVar

import msgspec
from msgspec import structs

from queen.core.operations import Cycle, Lot, Popped, Push, Transaction
from queen.core.segment import Entry, decode_entries

Pushing = TypeVar("Pushing", Push, Transaction, Cycle)

_text = msgspec.json.Decoder(str)


def stamp(request: Pushing, traceparent: str) -> Pushing:
    """The request with the context beside each message that it pushes."""
    if isinstance(request, Push):
        return structs.replace(request, lots=[_stamp_lot(lot, traceparent) for lot in request.lots])
    return structs.replace(request, push=stamp(request.push, traceparent))


def _stamp_lot(lot: Lot, traceparent: str) -> Lot:
    # Before everything else in the object: nothing of it has to be decoded.
    head = b'{"traceparent":"%b",' % traceparent.encode()
    entries, begin = [], 0
    for length in lot.lengths:
        entries.append(head + lot.body[begin + 1 : begin + length - 1])
        begin += length
    more = len(head) - 1
    return structs.replace(lot, body=b",".join(entries), lengths=[length + more for length in lot.lengths])


class Delivered(msgspec.Struct, frozen=True):
    """What a pop got: how many messages, and how many of them came with each context."""

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
                if isinstance(entry, Entry) and entry.traceparent:
                    contexts[_text.decode(entry.traceparent)] += 1
    return Delivered(messages, contexts)
