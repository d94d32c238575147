"""Re-encrypts stored messages with the current key: reads timers, segments and dead letters, and writes the changed."""

from typing import Protocol

from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, DecryptionError
from queen.log import ids
from queen.log.segment import decode_ends, encode_ends
from queen.postgres.pool import Pool
from queen.security.keyring import Keyring
from queen.security.messages import reseal_segment

#: Segments per read; each changed one is written in a transaction of its own.
_SEGMENTS = 50
_LETTERS = 200
_TIMERS = 1000
#: Partitions per read, and dead letters examined per read.
_PARTITIONS = 1000
_LETTERS_LOOKED_AT = 10_000

_COUNT = "SELECT queen.count_encrypted_v1($1) AS counted"
_FIND_PARTITIONS = "SELECT * FROM queen.find_encrypted_partitions_v1($1, $2)"
_FIND_SEGMENTS = "SELECT * FROM queen.find_segments_v1($1, $2, $3)"
_REPLACE_SEGMENT = "SELECT queen.replace_segment_v1($1, $2, $3, $4, $5) AS replaced"
_END_OF_LETTERS = "SELECT queen.end_of_letters_v1($1, $2) AS id"
_FIND_LETTERS = "SELECT * FROM queen.find_encrypted_letters_v1($1, $2, $3, $4)"
_REPLACE_LETTER = "SELECT queen.replace_letter_v1($1, $2, $3, $4) AS replaced"

_FIND_TIMERS = "SELECT * FROM queen.find_encrypted_timers_v1($1, $2, $3)"
_FIND_SCHEDULES = "SELECT * FROM queen.find_encrypted_schedules_v1()"
_REPLACE_TIMER = "SELECT queen.replace_timer_v1($1, $2, $3, $4, $5) AS replaced"


class EncryptedPartition(Struct, frozen=True):
    """A partition of a queue that is or was encrypted; ``plain_too``: it is, so plain payloads are encrypted too."""

    part_id: int
    queue: str
    partition: str
    plain_too: bool


class StoredSegment(Struct, frozen=True):
    """A segment of such a partition."""

    last_off: int
    ends: bytes
    data: bytes


class StoredLetter(Struct, frozen=True):
    """A dead letter of such a queue, encrypted with another key or not at all."""

    id: int
    queue: str
    partition: str
    key_id: str | None
    payload: str


class StoredTimer(Struct, frozen=True):
    """A timer of such a queue, or a cron schedule, whose ``key`` is its name; ``message``: its object in a segment."""

    queue_id: int
    key: str
    queue: str
    partition: str
    message: str
    plain_too: bool


class Rotation(Struct):
    """The result of a rotation.

    Attributes:
        changed: re-encrypted messages.
        letters: re-encrypted dead letters.
        timers: re-encrypted timers and schedules.
        unreadable: messages and dead letters that could not be decrypted.
    """

    changed: int = 0
    letters: int = 0
    timers: int = 0
    unreadable: int = 0


class Watcher(Protocol):
    """Observes the progress of a rotation."""

    def begun(self, total: int | None) -> None:
        """Starts; ``total``: segments and dead letters to examine, if known."""

    def advanced(self, number: int) -> None:
        """This many more were examined."""

    def unreadable(self, place: str, why: DecryptionError) -> None:
        """A message cannot be decrypted, and is unchanged."""


class RotationStore:
    """The procedures of a rotation."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def count(self, key_id: str) -> int | None:
        """Segments of such queues, and their dead letters with another key; None if counting takes too long.

        Unlike the rotation, the count cannot be split into pages.
        """
        try:
            [row] = await self._pool.fetch(_COUNT, key_id)
        except DatabaseUnavailableError:
            return None
        return int(row["counted"])

    async def find_partitions(self, after: int) -> list[EncryptedPartition]:
        """The next partitions, by number."""
        rows = await self._pool.fetch(_FIND_PARTITIONS, after, _PARTITIONS)
        return [EncryptedPartition(*row) for row in rows]

    async def find_segments(self, place: EncryptedPartition, after: int) -> list[StoredSegment]:
        """The next segments of a partition, by last offset."""
        rows = await self._pool.fetch(_FIND_SEGMENTS, place.part_id, after, _SEGMENTS)
        return [StoredSegment(*row) for row in rows]

    async def replace_segment(self, place: EncryptedPartition, old: StoredSegment, data: bytes, ends: bytes) -> bool:
        """Writes a segment back; false if it was removed or changed meanwhile."""
        [row] = await self._pool.fetch(_REPLACE_SEGMENT, place.part_id, old.last_off, old.data, data, ends)
        return bool(row["replaced"])

    async def end_of_letters(self, after: int) -> int | None:
        """The last number of the next range of dead letters; ``None``: no limit."""
        [row] = await self._pool.fetch(_END_OF_LETTERS, after, _LETTERS_LOOKED_AT)
        number: int | None = row["id"]
        return number

    async def find_letters(self, after: int, upto: int | None, key_id: str) -> list[StoredLetter]:
        """The next dead letters with another key, between two numbers."""
        rows = await self._pool.fetch(_FIND_LETTERS, after, upto, key_id, _LETTERS)
        return [StoredLetter(*row) for row in rows]

    async def replace_letter(self, old: StoredLetter, payload: str, key_id: str) -> bool:
        """Writes a dead letter back; false if it was removed or changed meanwhile."""
        [row] = await self._pool.fetch(_REPLACE_LETTER, old.id, old.payload, payload, key_id)
        return bool(row["replaced"])

    async def find_timers(self, last: StoredTimer | None) -> list[StoredTimer]:
        """The next timers, by queue and key."""
        place = (last.queue_id, last.key) if last is not None else (0, "")
        return [StoredTimer(*row) for row in await self._pool.fetch(_FIND_TIMERS, *place, _TIMERS)]

    async def find_schedules(self) -> list[StoredTimer]:
        """All cron schedules."""
        return [StoredTimer(*row) for row in await self._pool.fetch(_FIND_SCHEDULES)]

    async def replace_timer(self, old: StoredTimer, message: str, *, schedule: bool) -> bool:
        """Writes a timer or schedule back; false if it was removed or changed meanwhile."""
        [row] = await self._pool.fetch(_REPLACE_TIMER, schedule, old.queue_id, old.key, old.message, message)
        return bool(row["replaced"])


async def rotate_all(store: RotationStore, keys: Keyring, watcher: Watcher) -> Rotation:
    """Re-encrypts all messages and dead letters of encrypted queues with the current key, in small transactions."""
    rotation = Rotation()
    watcher.begun(await store.count(keys.current_id))
    await _rotate_timers(store, keys, rotation, watcher)
    part_id = -1
    while places := await store.find_partitions(part_id):
        for place in places:
            await _rotate_partition(store, place, keys, rotation, watcher)
        part_id = places[-1].part_id
    await _rotate_letters(store, keys, rotation, watcher)
    return rotation


async def _rotate_partition(
    store: RotationStore, place: EncryptedPartition, keys: Keyring, rotation: Rotation, watcher: Watcher
) -> None:
    after = -1
    while segments := await store.find_segments(place, after):
        for segment in segments:
            await _rotate_segment(store, place, segment, keys, rotation, watcher)
        watcher.advanced(len(segments))
        after = segments[-1].last_off


async def _rotate_timers(store: RotationStore, keys: Keyring, rotation: Rotation, watcher: Watcher) -> None:
    """Comes before segments: a timer that fires afterwards is under the current key."""
    timers = await store.find_timers(None)
    while timers:
        for timer in timers:
            await _rotate_timer(store, timer, keys, rotation, watcher, schedule=False)
        timers = await store.find_timers(timers[-1])
    for schedule in await store.find_schedules():
        await _rotate_timer(store, schedule, keys, rotation, watcher, schedule=True)


async def _rotate_timer(
    store: RotationStore, old: StoredTimer, keys: Keyring, rotation: Rotation, watcher: Watcher, *, schedule: bool
) -> None:
    message = old.message.encode()
    ends = encode_ends([len(message) + 1])
    new = reseal_segment(b"[" + message + b"]", ends, old.queue, old.partition, keys, plain_too=old.plain_too)
    for why in new.unreadable.values():
        watcher.unreadable(f"{old.queue}, {'schedule' if schedule else 'timer'} {old.key}", why)
    rotation.unreadable += len(new.unreadable)
    if new.changed:
        rotation.timers += await store.replace_timer(old, new.data[1:-1].decode(), schedule=schedule)


async def _rotate_letters(store: RotationStore, keys: Keyring, rotation: Rotation, watcher: Watcher) -> None:
    """Walks over all dead letters in ranges of some thousands, even if few of them have to change."""
    after, upto = -1, await store.end_of_letters(-1)
    while True:
        letters = await store.find_letters(after, upto, keys.current_id)
        for letter in letters:
            await _rotate_letter(store, letter, keys, rotation, watcher)
        watcher.advanced(len(letters))
        if letters:
            after = letters[-1].id
        elif upto is None:
            return
        else:
            after, upto = upto, await store.end_of_letters(upto)


async def _rotate_segment(
    store: RotationStore,
    place: EncryptedPartition,
    old: StoredSegment,
    keys: Keyring,
    rotation: Rotation,
    watcher: Watcher,
) -> None:
    new = reseal_segment(old.data, old.ends, place.queue, place.partition, keys, plain_too=place.plain_too)
    while new.changed and not await store.replace_segment(place, old, new.data, new.ends):
        # Since the read, a message was deleted, or the segment removed.
        again = await store.find_segments(place, old.last_off - 1)
        if not again or again[0].last_off != old.last_off:
            return
        old = again[0]
        new = reseal_segment(old.data, old.ends, place.queue, place.partition, keys, plain_too=place.plain_too)
    first = old.last_off - len(decode_ends(old.ends)) + 1
    for number, why in new.unreadable.items():
        watcher.unreadable(f"{place.queue}, partition {place.partition}, offset {first + number}", why)
    rotation.unreadable += len(new.unreadable)
    rotation.changed += new.changed


async def _rotate_letter(
    store: RotationStore, old: StoredLetter, keys: Keyring, rotation: Rotation, watcher: Watcher
) -> None:
    payload = old.payload.encode()
    try:
        clear = keys.open(old.key_id, payload, old.queue, old.partition) if old.key_id else payload
    except DecryptionError as problem:
        watcher.unreadable(f"{old.queue}, dead letter {ids.dead_letter_id(old.id)}", problem)
        rotation.unreadable += 1
        return
    sealed = keys.seal(clear, old.queue, old.partition).decode()
    rotation.letters += await store.replace_letter(old, sealed, keys.current_id)
