"""Messages of encrypted queues: encryption at the push, decryption at delivery, re-encryption with a new key."""

from collections.abc import Callable, Mapping

import msgspec

from queen.core.errors import DecryptionError
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import Entry, decode_entries, encode_ends, encode_raw
from queen.security.alarm import DecryptionAlarm
from queen.security.keyring import Keyring

_text = msgspec.json.Decoder(str)
_alarm = DecryptionAlarm()


def seal_push(push: Push, is_encrypted: Callable[[str], bool], keys: Keyring) -> Push:
    """The request with payloads for encrypted queues encrypted; already encrypted ones are unchanged."""
    if not any([is_encrypted(batch.queue) for batch in push.batches]):
        return push
    return Push([seal_batch(batch, keys) if is_encrypted(batch.queue) else batch for batch in push.batches], push.items)


def seal_batch(batch: PartitionBatch, keys: Keyring) -> PartitionBatch:
    """The batch with all payloads encrypted."""
    if batch.sealed:
        return batch
    entries = decode_entries(b"[" + batch.body, encode_ends(batch.lengths), 0)
    sealed = [_sealed(entry, keys, batch.queue, batch.partition) for entry in entries]
    lengths = [len(entry) + 1 for entry in sealed]
    return PartitionBatch(batch.queue, batch.partition, batch.places, b",".join(sealed), lengths, batch.ids, True)


def _sealed(entry: Entry | bytes, keys: Keyring, queue: str, partition: str) -> bytes:
    if isinstance(entry, bytes):
        entry = Entry(msgspec.Raw(entry))
    if entry.keyId:
        return encode_raw(entry)
    return encode_raw(_under_current_key(entry, bytes(entry.payload), keys, queue, partition))


def _under_current_key(entry: Entry, payload: bytes, keys: Keyring, queue: str, partition: str) -> Entry:
    return msgspec.structs.replace(
        entry,
        payload=msgspec.Raw(keys.seal(payload, queue, partition)),
        keyId=msgspec.Raw(msgspec.json.encode(keys.current_id)),
    )


def open_payload(key_id: str, payload: bytes, queue: str, partition: str, keys: Keyring | None) -> bytes:
    """The decrypted payload.

    Args:
        key_id: id of the key, as stored beside the payload.
        payload: the stored JSON.
        queue: queue of the message.
        partition: partition of the message.
        keys: of the server; ``None`` if it has none.

    Raises:
        DecryptionError: the key is missing, or the stored text was modified.
    """
    try:
        return _opened(key_id, payload, queue, partition, keys)
    except DecryptionError as problem:
        _alarm.ring(problem, queue, partition)
        raise


def _opened(key_id: str, payload: bytes, queue: str, partition: str, keys: Keyring | None) -> bytes:
    if keys is None:
        raise DecryptionError("The payload is encrypted, but this server has no QUEEN_ENCRYPTION_KEY")
    return keys.open(key_id, payload, queue, partition)


def open_entry(entry: Entry, queue: str, partition: str, keys: Keyring | None) -> bytes:
    """The decrypted payload of a message; raises DecryptionError like ``open_payload``."""
    return open_payload(_text.decode(entry.keyId), bytes(entry.payload), queue, partition, keys)


class Reseal(msgspec.Struct, frozen=True):
    """A re-encrypted segment: its columns, the number of changed messages, and the unreadable ones.

    Attributes:
        unreadable: index in the segment, from 0, and the error.
    """

    data: bytes
    ends: bytes
    changed: int
    unreadable: Mapping[int, DecryptionError]


def reseal_segment(data: bytes, ends: bytes, queue: str, partition: str, keys: Keyring, *, plain_too: bool) -> Reseal:
    """Re-encrypts a segment with the current key; ``plain_too`` also encrypts messages that are not encrypted yet.

    A message that cannot be decrypted is unchanged.
    """
    entries, changed, unreadable = [], 0, {}
    for number, stored in enumerate(decode_entries(data, ends, 0)):
        entry = Entry(msgspec.Raw(stored)) if isinstance(stored, bytes) else stored
        name = _text.decode(entry.keyId) if entry.keyId else None
        if name != keys.current_id and (name is not None or plain_too):
            try:
                payload = keys.open(name, bytes(entry.payload), queue, partition) if name else bytes(entry.payload)
                entry = _under_current_key(entry, payload, keys, queue, partition)
                changed += 1
            except DecryptionError as problem:
                unreadable[number] = problem
        entries.append(encode_raw(entry))
    return Reseal(
        b"[" + b",".join(entries) + b"]", encode_ends(len(entry) + 1 for entry in entries), changed, unreadable
    )
