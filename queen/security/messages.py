"""Messages of encrypted queues: sealed on their way in, opened on their way out, brought under a new key."""

from collections.abc import Callable, Mapping

import msgspec

from queen.core.errors import DecryptionError
from queen.core.operations import Lot, Push
from queen.core.segment import Entry, decode_entries, encode_ends, encode_raw
from queen.security.alarm import DecryptionAlarm
from queen.security.keyring import Keyring

_text = msgspec.json.Decoder(str)
_alarm = DecryptionAlarm()


def seal_push(push: Push, is_encrypted: Callable[[str], bool], keys: Keyring) -> Push:
    """The request with the payloads for encrypted queues sealed; those that are already stay as they are."""
    if not any([is_encrypted(lot.queue) for lot in push.lots]):
        return push
    return Push([seal_lot(lot, keys) if is_encrypted(lot.queue) else lot for lot in push.lots], push.items)


def seal_lot(lot: Lot, keys: Keyring) -> Lot:
    """The lot with every payload sealed."""
    if lot.sealed:
        return lot
    entries = decode_entries(b"[" + lot.body, encode_ends(lot.lengths), 0)
    sealed = [_sealed(entry, keys, lot.queue, lot.partition) for entry in entries]
    lengths = [len(entry) + 1 for entry in sealed]
    return Lot(lot.queue, lot.partition, lot.places, b",".join(sealed), lengths, lot.ids, True)


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
    """The payload in clear.

    Args:
        key_id: name of the key, as stored beside the payload.
        payload: the stored JSON.
        queue: where it was pushed to.
        partition: the same.
        keys: the server's; none if it has none.

    Raises:
        DecryptionError: a key is missing, or the text is not what was stored.
    """
    try:
        return _opened(key_id, payload, queue, partition, keys)
    except DecryptionError as problem:
        _alarm.ring(problem, queue, partition)
        raise


def _opened(key_id: str, payload: bytes, queue: str, partition: str, keys: Keyring | None) -> bytes:
    if keys is None:
        raise DecryptionError("The payload is encrypted, and this server has no QUEEN_ENCRYPTION_KEY")
    return keys.open(key_id, payload, queue, partition)


def open_entry(entry: Entry, queue: str, partition: str, keys: Keyring | None) -> bytes:
    """The payload of an encrypted message in clear; raises DecryptionError like ``open_payload``."""
    return open_payload(_text.decode(entry.keyId), bytes(entry.payload), queue, partition, keys)


class Reseal(msgspec.Struct, frozen=True):
    """A segment under the current key: its columns, how many messages have changed, and which could not be read.

    Attributes:
        unreadable: the place in the segment, from 0, and why.
    """

    data: bytes
    ends: bytes
    changed: int
    unreadable: Mapping[int, DecryptionError]


def reseal_segment(data: bytes, ends: bytes, queue: str, partition: str, keys: Keyring, *, plain_too: bool) -> Reseal:
    """A whole segment with its messages under the current key; ``plain_too`` encrypts those that are not encrypted yet.

    A message that cannot be decrypted stays as it is.
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
