"""Encryption of payloads: round trips, tampering, keys, and messages in and out of segments."""

import random

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from queen.core.errors import DecryptionError, SettingError
from queen.http.parsing import PushItem, to_push
from queen.log.requests import PartitionBatch
from queen.log.segment import Entry, decode_entries, encode_ends, encode_entry, encode_plain, plain_length
from queen.security.keyring import Keyring, Nonces, Sealed, key_id
from queen.security.messages import open_entry, reseal_segment, seal_push
from spec.guarantees import Level, checks

OLD, NEW, FOREIGN = b"\1" * 32, b"\2" * 32, b"\3" * 32
PLACE = ("orders", "p")

payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(msgspec.json.encode)


@given(payloads, st.text(min_size=1), st.text(min_size=1))
def test_encrypted_payloads_decrypt_in_their_partition(payload: bytes, queue: str, partition: str) -> None:
    keys = Keyring(NEW)
    assert keys.open(keys.current_id, keys.seal(payload, queue, partition), queue, partition) == payload


def test_the_stored_form_is_aes_256_gcm_with_the_place_as_associated_data() -> None:
    keys = Keyring(NEW)
    stored = msgspec.json.decode(keys.seal(b'{"a":1}', *PLACE), type=Sealed)
    assert (len(stored.iv), len(stored.authTag)) == (12, 16)
    assert AESGCM(NEW).decrypt(stored.iv, stored.encrypted + stored.authTag, b'["orders","p"]') == b'{"a":1}'
    assert msgspec.json.decode(keys.seal(b"1", *PLACE)).keys() == {"encrypted", "iv", "authTag"}


def test_a_known_answer_opens() -> None:
    """Made with OpenSSL's AES-256-GCM: key of bytes 2, nonce of zeros."""
    text = AESGCM(NEW).encrypt(bytes(12), b'"known"', b'["orders","p"]')
    stored = msgspec.json.encode(Sealed(text[:-16], bytes(12), text[-16:]))
    assert Keyring(NEW).open(key_id(NEW), stored, *PLACE) == b'"known"'


@checks("G-SEC-5", level=Level.MODEL)
def test_of_100_000_tampered_texts_none_is_accepted() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    keys = Keyring(NEW, [OLD])
    sealed = [keys.seal(msgspec.json.encode({"amount": n, "text": "x" * (n % 40)}), *PLACE) for n in range(50)]
    for _ in range(100_000):
        original = rng.choice(sealed)
        with pytest.raises(DecryptionError):
            keys.open(keys.current_id, tampered(original, rng), *PLACE)


def tampered(sealed: bytes, rng: random.Random) -> bytes:
    """Another text: a bit of the parts, a character of the JSON, a part cut, doubled or exchanged, bytes inserted."""
    parts = msgspec.json.decode(sealed, type=Sealed)
    fields = {"encrypted": parts.encrypted, "iv": parts.iv, "authTag": parts.authTag}
    kind = rng.randrange(5)
    if kind == 0:
        name = rng.choice([name for name, value in fields.items() if value])
        value = bytearray(fields[name])
        value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        fields[name] = bytes(value)
    elif kind == 1:
        at = rng.randrange(len(sealed))
        return sealed[:at] + bytes([sealed[at] ^ (1 << rng.randrange(8))]) + sealed[at + 1 :]
    elif kind == 2:
        name = rng.choice(list(fields))
        fields[name] = fields[name][: rng.randrange(len(fields[name]))] if fields[name] else b"x"
    elif kind == 3:
        fields["encrypted"] += rng.randbytes(rng.randrange(1, 5))
    else:
        at = rng.randrange(len(sealed) + 1)
        return sealed[:at] + rng.choice([b" ", b"A", b"=", b"\n", b'"']) + sealed[at:]
    return msgspec.json.encode(fields)


@checks("G-SEC-5", level=Level.MODEL)
@pytest.mark.parametrize("place", [("orders", "q"), ("other", "p"), ('orders","p', ""), ("", "orders")])
def test_a_text_that_was_moved_is_not_accepted(place: tuple[str, str]) -> None:
    keys = Keyring(NEW)
    with pytest.raises(DecryptionError, match="belongs to another message"):
        keys.open(keys.current_id, keys.seal(b"1", *PLACE), *place)


def test_other_spellings_of_the_same_bytes_are_not_accepted() -> None:
    keys = Keyring(NEW)
    sealed = keys.seal(b'"abc"', *PLACE)
    fields = msgspec.json.decode(sealed)
    spaced = msgspec.json.format(sealed, indent=1)
    more = msgspec.json.encode({**fields, "more": 1})
    for other in (spaced, more):
        with pytest.raises(DecryptionError):
            keys.open(keys.current_id, other, *PLACE)


def test_an_old_key_reads_and_a_missing_one_is_named() -> None:
    old = Keyring(OLD)
    sealed = old.seal(b"1", *PLACE)
    assert Keyring(NEW, [OLD]).open(old.current_id, sealed, *PLACE) == b"1"
    with pytest.raises(DecryptionError, match=f"{old.current_id}.*QUEEN_ENCRYPTION_OLD_KEYS"):
        Keyring(NEW).open(old.current_id, sealed, *PLACE)
    with pytest.raises(DecryptionError):
        Keyring(NEW, [OLD]).open(key_id(NEW), sealed, *PLACE)


def test_key_ids_do_not_tell_keys() -> None:
    assert len({key_id(key) for key in (OLD, NEW, FOREIGN)}) == 3
    assert OLD.hex()[:16] not in key_id(OLD)


def test_nonces_do_not_repeat_also_when_the_counter_is_full() -> None:
    nonces = Nonces()
    seen = {nonces.take() for _ in range(1000)}
    nonces._count = 2**32 - 2
    seen |= {nonces.take() for _ in range(1000)}
    assert len(seen) == 2000
    assert {len(nonce) for nonce in seen} == {12}
    assert nonces.take()[:8] != Nonces().take()[:8]


def test_keys_come_from_hex() -> None:
    keys = Keyring.from_settings(NEW.hex(), f"{OLD.hex()},{FOREIGN.hex()}")
    assert keys is not None
    assert keys.open(key_id(FOREIGN), Keyring(FOREIGN).seal(b"1", *PLACE), *PLACE) == b"1"
    assert Keyring.from_settings("", "") is None
    with pytest.raises(SettingError, match="QUEEN_ENCRYPTION_KEY is not"):
        Keyring.from_settings("", OLD.hex())


def read_back(batch: PartitionBatch, keys: Keyring) -> list[tuple[bytes, bytes]]:
    """Transaction id and payload of each message."""
    entries = decode_entries(b"[" + batch.body + b"]", encode_ends(batch.lengths), 0)
    assert all(isinstance(entry, Entry) and entry.keyId for entry in entries)
    return [(bytes(e.transactionId), open_entry(e, batch.queue, batch.partition, keys)) for e in entries]  # type: ignore[union-attr]


@given(
    st.lists(
        st.tuples(payloads, st.none() | st.text(min_size=1, max_size=9).filter(lambda t: "\0" not in t)), min_size=1
    )
)
def test_a_batch_keeps_its_messages_when_it_is_encrypted(items: list[tuple[bytes, str | None]]) -> None:
    keys = Keyring(NEW)
    push = to_push([PushItem("q", "p", msgspec.Raw(payload), chosen) for payload, chosen in items], "who")
    assert seal_push(push, lambda _queue: False, keys) is push
    sealed = seal_push(push, lambda queue: queue == "q", keys)
    assert seal_push(sealed, lambda _queue: True, keys) == sealed
    [batch] = sealed.batches
    assert (batch.places, batch.ids) == (push.batches[0].places, push.batches[0].ids)
    expected = [(msgspec.json.encode(chosen) if chosen else b"", payload) for payload, chosen in items]
    assert read_back(batch, keys) == expected


def test_a_client_cannot_pass_a_payload_off_as_encrypted() -> None:
    forged = {"encrypted": "AAAA", "iv": "AAAA", "authTag": "AAAA", "keyId": key_id(NEW)}
    push = to_push([PushItem("q", "p", msgspec.Raw(msgspec.json.encode(forged)))])
    [entry] = decode_entries(b"[" + push.batches[0].body + b"]", encode_ends(push.batches[0].lengths), 0)
    assert isinstance(entry, bytes), "a bare payload"


@given(st.lists(st.sampled_from(["plain", "old", "new", "foreign"]), min_size=1, max_size=12), st.booleans())
def test_a_segment_is_encrypted_with_the_current_key(kinds: list[str], plain_too: bool) -> None:
    keys, rings = Keyring(NEW, [OLD]), {"old": Keyring(OLD), "new": Keyring(NEW), "foreign": Keyring(FOREIGN)}
    entries = []
    for n, kind in enumerate(kinds):
        payload = msgspec.json.encode(n)
        if kind == "plain":
            entries.append(encode_plain([payload]) if n % 2 else encode_entry(payload, f"t{n}", None, None))
        else:
            ring = rings[kind]
            head = b'{"keyId":"%b","payload":' % ring.current_id.encode()
            entries.append(head + ring.seal(payload, *PLACE) + b"}")
    data, ends = b"[" + b",".join(entries) + b"]", encode_ends(len(entry) + 1 for entry in entries)
    done = reseal_segment(data, ends, *PLACE, keys, plain_too=plain_too)
    assert list(done.unreadable) == [n for n, kind in enumerate(kinds) if kind == "foreign"]
    assert done.changed == kinds.count("old") + kinds.count("plain") * plain_too
    for n, (kind, entry) in enumerate(zip(kinds, decode_entries(done.data, done.ends, 0), strict=True)):
        if isinstance(entry, bytes) or not entry.keyId:
            assert kind == "plain"
            assert not plain_too
        elif kind == "foreign":
            with pytest.raises(DecryptionError):
                open_entry(entry, *PLACE, Keyring(NEW))
        else:
            assert open_entry(entry, *PLACE, Keyring(NEW)) == msgspec.json.encode(n)
    again = reseal_segment(done.data, done.ends, *PLACE, keys, plain_too=plain_too)
    assert (again.data, again.ends, again.changed) == (done.data, done.ends, 0)


def test_plain_lengths_are_those_of_a_segment() -> None:
    assert plain_length(b"1") == len(encode_plain([b"1"])) + 1
