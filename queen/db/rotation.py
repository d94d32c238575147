"""Bringing what is stored under the current key: reads segments and dead letters, writes back those that change."""

from collections.abc import Sequence

from msgspec import Struct

from queen.core.errors import DecryptionError
from queen.db.pool import Pool
from queen.security.keyring import Keyring
from queen.security.messages import reseal_segment

#: Segments of one look; each that changes is a transaction of its own.
_SEGMENTS = 50
_LETTERS = 200

_FIND_SEGMENTS = "SELECT * FROM queen.find_encrypted_segments_v1($1, $2, $3)"
_REPLACE_SEGMENT = "SELECT queen.replace_segment_v1($1, $2, $3, $4, $5) AS replaced"
_FIND_LETTERS = "SELECT * FROM queen.find_encrypted_letters_v1($1, $2, $3)"
_REPLACE_LETTER = "SELECT queen.replace_letter_v1($1, $2, $3, $4) AS replaced"


class StoredSegment(Struct, frozen=True):
    """A segment of a queue that is or was encrypted; ``plain_too``: it is, so nothing may stand there in clear."""

    part_id: int
    last_off: int
    queue: str
    partition: str
    plain_too: bool
    ends: bytes
    data: bytes


class StoredLetter(Struct, frozen=True):
    """A dead letter of such a queue, under another key or none."""

    id: int
    queue: str
    partition: str
    key_id: str | None
    payload: str


class Rotation(Struct):
    """What a rotation did.

    Attributes:
        changed: messages that are under the current key now.
        letters: dead letters, the same.
        unreadable: messages and dead letters that could not be decrypted.
    """

    changed: int = 0
    letters: int = 0
    unreadable: int = 0


class RotationStore:
    """The procedures of a rotation."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find_segments(self, after: tuple[int, int]) -> list[StoredSegment]:
        """The next segments after a (partition, last offset)."""
        rows = await self._pool.fetch(_FIND_SEGMENTS, *after, _SEGMENTS)
        return [StoredSegment(*row) for row in rows]

    async def replace_segment(self, old: StoredSegment, data: bytes, ends: bytes) -> bool:
        """Writes a segment back; false if it was removed or changed meanwhile."""
        [row] = await self._pool.fetch(_REPLACE_SEGMENT, old.part_id, old.last_off, old.data, data, ends)
        return bool(row["replaced"])

    async def find_letters(self, after: int, key_id: str) -> list[StoredLetter]:
        """The next dead letters after an id that are not under this key."""
        rows = await self._pool.fetch(_FIND_LETTERS, after, key_id, _LETTERS)
        return [StoredLetter(*row) for row in rows]

    async def replace_letter(self, old: StoredLetter, payload: str, key_id: str) -> bool:
        """Writes a dead letter back; false if it was removed or changed meanwhile."""
        [row] = await self._pool.fetch(_REPLACE_LETTER, old.id, old.payload, payload, key_id)
        return bool(row["replaced"])


async def rotate_all(store: RotationStore, keys: Keyring) -> Rotation:
    """Brings all messages and dead letters of encrypted queues under the current key, in small transactions."""
    rotation = Rotation()
    place = (-1, -1)
    while segments := await store.find_segments(place):
        await _rotate_segments(store, segments, keys, rotation)
        place = (segments[-1].part_id, segments[-1].last_off)
    letter_id = -1
    while letters := await store.find_letters(letter_id, keys.current_id):
        await _rotate_letters(store, letters, keys, rotation)
        letter_id = letters[-1].id
    return rotation


async def _rotate_segments(
    store: RotationStore, segments: Sequence[StoredSegment], keys: Keyring, rotation: Rotation
) -> None:
    for old in segments:
        new = reseal_segment(old.data, old.ends, old.queue, old.partition, keys, plain_too=old.plain_too)
        rotation.unreadable += new.unreadable
        if new.changed and await store.replace_segment(old, new.data, new.ends):
            rotation.changed += new.changed


async def _rotate_letters(
    store: RotationStore, letters: Sequence[StoredLetter], keys: Keyring, rotation: Rotation
) -> None:
    for old in letters:
        payload = old.payload.encode()
        try:
            clear = keys.open(old.key_id, payload, old.queue, old.partition) if old.key_id else payload
        except DecryptionError:
            rotation.unreadable += 1
            continue
        sealed = keys.seal(clear, old.queue, old.partition).decode()
        rotation.letters += await store.replace_letter(old, sealed, keys.current_id)
