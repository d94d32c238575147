"""Idempotence: one message per transaction id and partition."""

from __future__ import annotations

from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, History, Message
from .verdict import Violation


@checks("G-IDEM-1", level=Level.LIVE)
def a_transaction_id_is_stored_once(history: History) -> Iterator[Violation | None]:
    """All answers about a transaction id in a partition are about one message, and one push of it is `queued`."""
    for message in history.messages:
        names, queued = _names(message)
        offsets = _offsets(message)
        if len(names) > 1 or len(offsets) > 1:
            yield Violation(message.id, f"stands for the messages {sorted(names)} at the offsets {sorted(offsets)}")
        elif queued > 1:
            yield Violation(message.id, f"{queued} pushes were answered as queued")
        elif names:
            yield None


def _names(message: Message) -> tuple[set[str], int]:
    """The message ids under which it was stored and delivered, and how often it was queued.

    Duplicates and buffered messages are not considered.
    """
    names: set[str] = set()
    queued = 0
    for _, item in message.pushes:
        if item.outcome == "ok" and not item.duplicate:
            queued += not item.spooled
            if item.message_id:
                names.add(item.message_id)
    for reading in message.readings:
        for _, delivery in reading.deliveries:
            names.add(delivery.message_id)
    return names, queued


def _offsets(message: Message) -> set[int]:
    found: set[int] = set()
    for reading in message.readings:
        for _, delivery in reading.deliveries:
            if delivery.offset is not None:
                found.add(delivery.offset)
    return found


@checks("G-IDEM-2", level=Level.LIVE)
def a_duplicate_names_the_stored_message(history: History) -> Iterator[Violation | None]:
    """The id in the answer to a duplicate is that of the message that is delivered, or was answered as queued."""
    for message in history.messages:
        duplicates = [item for _, item in message.pushes if item.duplicate]
        names = _names(message)[0] if duplicates else ()
        for item in duplicates if names else ():
            text = f"the answer to its duplicate names {item.message_id}, and stored is {sorted(names)}"
            yield None if item.message_id in names else Violation(message.id, text)


@checks("G-IDEM-3", level=Level.LIVE)
def a_duplicate_has_an_original_in_its_partition(history: History) -> Iterator[Violation | None]:
    """A push is answered as a duplicate only if another may have stored its transaction id in that partition."""
    for message in history.messages:
        duplicates = [(call, item) for call, item in message.pushes if item.duplicate and item.outcome == "ok"]
        if duplicates:
            sent = sorted((call.invoked, id(item)) for call, item in message.pushes if item.outcome != "fail")
            for call, item in duplicates:
                other = next((invoked for invoked, name in sent[:2] if name != id(item)), NEVER)
                text = f"was answered as a duplicate, but no other request pushed it to {item.queue}/{item.partition}"
                yield None if other <= call.end else Violation(message.id, text)
