"""The files of the spool and the rules by which they change. Synchronous; every step is one call of ``Folder``.

======================= ============================================================================================
``N.buf.tmp``           being written; N counts up
``N.buf``               complete, waits to be replayed
``N.held``              of file N what cannot be stored yet, or stands behind such a request: waits for longer
``….failed``            set aside: PostgreSQL refused it for its data, or it cannot be read
``spooling``            the flag of the instance: while it exists, every worker spools
``held-back``           while it exists, every worker spools pushes to the partitions that it names
``maintenance``         while it exists, nothing is replayed; ``pop-maintenance``: while it exists, pops get nothing
``encrypted-queues``    the queues whose payloads are encrypted before they come here, as a JSON array
``ledger``, ``*.lock``  figures, and locks of the operating system
======================= ============================================================================================

**Order.** Whoever appends, rotates or ends the spool holds ``append.lock``, so the place of a record in the files is
the place of its answer in time: a push that comes after another was answered stands behind it. The flag appears before
the first answer and goes, under the lock, when nothing waits any more.

**Crashes.** Appending is ``write`` and ``sync`` before the answer. A file gets the name ``N.buf`` when it is complete,
and is removed when PostgreSQL has committed all of it. How far a file has been replayed is known to PostgreSQL alone,
which notes it in the transaction that stores the messages: so it does not matter when a crash comes. What is held back
is on the disk as ``N.held`` before PostgreSQL notes that ``N.buf`` is stored behind it. Who replays writes ``N.held``.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4, uuid5

from msgspec import Struct, structs

from queen.core.errors import SettingError, SpoolError, SpoolFullError
from queen.spool.folder import NO_ROOM, Folder, Lock
from queen.spool.format import (
    Damage,
    Header,
    Record,
    SpooledLot,
    SpoolFile,
    encode_header,
    encode_record,
    read_file,
)
from queen.spool.held import BEHIND, Held, Partition, decode_held, encode_held
from queen.spool.ledger import Ledger, decode, encode
from queen.spool.state import SetAside, SpoolState

log = logging.getLogger("queen.spool")

SPOOLING, MAINTENANCE, POP_MAINTENANCE = "spooling", "maintenance", "pop-maintenance"
_HELD_PARTITIONS = "held-back"
_ENCRYPTED, _NEW = "encrypted-queues", ".new"
_LEDGER, _APPEND_LOCK, _REPLAY_LOCK = "ledger", "append.lock", "replay.lock"
_TRIAL, _TRIAL_BYTES = "trial", 64 << 10
_WRITING, _COMPLETE, _FAILED, _MAKING = ".buf.tmp", ".buf", ".failed", ".failed.tmp"
_HELD_BACK, _HELD_FAILED = ".held", "-held.failed"


class Limits(Struct, frozen=True):
    """How much may wait, and when a file is complete."""

    bytes_max: int = 1 << 30
    file_requests_max: int = 10_000
    file_bytes_max: int = 16 << 20


class Entry(Struct, frozen=True):
    """A record that is to be appended: its frame, and what it holds; ``partitions`` of each of its requests."""

    frame: bytes
    messages: int
    partitions: Sequence[frozenset[Partition]]

    @property
    def requests(self) -> int:
        """How many push requests it holds."""
        return len(self.partitions)


def entry_of(record: Record) -> Entry:
    """Encodes a record."""
    return Entry(encode_record(record), record.messages, list(map(_partitions_of, record.requests)))


def _partitions_of(request: Sequence[SpooledLot]) -> frozenset[Partition]:
    return frozenset([(lot.queue, lot.partition) for lot in request])


def _number(name: str) -> int:
    digits = name.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _place(name: str) -> int:
    digits = name.partition(".")[0].partition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def is_waiting(name: str) -> bool:
    """Whether a file holds what is to be replayed."""
    return name.endswith((_COMPLETE, _WRITING)) and _number(name) > 0


def is_held_back(name: str) -> bool:
    """Whether a file holds what cannot be stored yet."""
    return name.endswith(_HELD_BACK) and _number(name) > 0


def is_failed(name: str) -> bool:
    """Whether a file was set aside."""
    return name.endswith(_FAILED)


class Spool:
    """The spool in one folder. Several processes and threads may have one each, on the same folder.

    Args:
        folder: exists, and can be written.
        installation: the database that the messages are for.
        limits: how much it takes.
        clock: seconds since 1970.
    """

    def __init__(
        self, folder: Folder, installation: UUID, limits: Limits, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder, self._installation, self._limits, self._clock = folder, installation, limits, clock
        self._known_held: tuple[bytes, Mapping[Partition, Held]] = b"", {}
        self._held_ends: dict[str, int] = {}
        self._known_failed: dict[str, SetAside] = {}

    # ------------------------------------------------------------ flags

    def has(self, flag: str) -> bool:
        """Whether a flag is set, by whichever process."""
        return self._folder.exists(flag)

    @property
    def spooling(self) -> bool:
        """Whether every push of this instance goes to the spool."""
        return self._folder.exists(SPOOLING)

    def set_flag(self, flag: str, on: bool) -> None:
        """Sets or clears a flag; the caller holds the lock, so that it stands in order with appends and their end."""
        if on and not self._folder.exists(flag):
            self._folder.append(flag, b"")
        elif not on and self._folder.exists(flag):
            self._folder.remove(flag)

    # ------------------------------------------------------------ held back

    @property
    def held_back(self) -> Mapping[Partition, Held]:
        """The partitions to which pushes are spooled although the spool has ended for others.

        To be looked at after ``spooling``: when that goes, this is up to date.
        """
        if not self._folder.exists(_HELD_PARTITIONS):
            return {}
        try:
            content = self._folder.read(_HELD_PARTITIONS)
        except FileNotFoundError:
            return {}
        known, held = self._known_held
        if content != known:
            held = decode_held(content)
            self._known_held = content, held
        return held

    def note_held(self, held: Mapping[Partition, Held]) -> None:
        """Replaces the list of partitions at once; the caller holds the lock. A crash of the machine may undo it."""
        if not held:
            self.set_flag(_HELD_PARTITIONS, False)
        elif held != self.held_back:
            self._replace(_HELD_PARTITIONS, encode_held(held.values()))

    def note_reason(self, partitions: Collection[Partition], reason: str) -> None:
        """Why these are held back now; the caller holds the lock."""
        held = self.held_back
        changed = {key: structs.replace(held[key], reason=reason) for key in partitions if key in held}
        self.note_held({**held, **changed})

    def held_files(self) -> list[str]:
        """The files of what is held back, oldest first."""
        return sorted(filter(is_held_back, self._folder.names()), key=_number)

    def source_of(self, held_file: str) -> str:
        """The file that a held-back one comes from, which may be gone."""
        return _complete(_number(held_file))

    def waits(self, held_file: str) -> bool:
        """Whether that file is still there, so that the held-back one may grow."""
        return self._folder.exists(self.source_of(held_file))

    def hold_back(self, file: SpoolFile, name: str, records: Sequence[Record]) -> None:
        """Puts what cannot be stored yet on the disk; the caller holds the lock, and replays.

        Args:
            file: where it comes from.
            name: the name of that file.
            records: each with its place.
        """
        held_file = held_file_of(name)
        if held_file not in self._held_ends:
            self.read_held(held_file)
        data = b"".join([encode_record(record) for record in records])
        end = self._held_ends.get(held_file, 0)
        if not end:
            source = file.header.file if file.header else self._installation
            data = encode_header(Header(uuid5(source, "held"), self._installation, self._clock())) + data
        self._write(held_file, data, end)
        if not end:
            self._folder.sync_names()
        self._held_ends[held_file] = end + len(data)
        ledger = self._ledger()
        self._note(ledger.changed(size=ledger.size + len(data)))

    def read_held(self, held_file: str) -> SpoolFile | None:
        """A file of what is held back, made whole: a torn end was never relied on. ``None`` if nothing is there."""
        if not self._folder.exists(held_file):
            return None
        file = self.read(held_file)
        if file.records and isinstance(torn := file.records[-1], Damage) and torn.torn and self.waits(held_file):
            file = SpoolFile(file.header, file.records[:-1], torn.start)
            self._folder.truncate(held_file, torn.start)
            self._folder.sync(held_file)
        if not file.records:
            self._folder.remove(held_file)
            self._folder.sync_names()
            return None
        self._held_ends[held_file] = self._folder.size(held_file)
        return file

    # ------------------------------------------------------------ encrypted queues

    def encrypted_queues(self) -> bytes | None:
        """The list of them as it was noted last; ``None`` if it never was."""
        return self._folder.read(_ENCRYPTED) if self._folder.exists(_ENCRYPTED) else None

    def note_encrypted_queues(self, content: bytes) -> None:
        """Replaces the list, durably; the caller holds the lock.

        Raises:
            SpoolError: the disk failed; the list is the old or the new one.
        """
        try:
            self._replace(_ENCRYPTED, content)
            self._folder.sync_names()
        except OSError as problem:
            raise _spool_error(problem) from problem

    def _replace(self, name: str, content: bytes) -> None:
        """Gives a small file another content, at once."""
        new = name + _NEW
        if self._folder.exists(new):
            self._folder.remove(new)
        self._folder.append(new, content)
        self._folder.sync(new)
        self._folder.rename(new, name)

    # ------------------------------------------------------------ locks

    def hold(self) -> Lock:
        """Waits for the lock of all appends."""
        lock = self._folder.lock(_APPEND_LOCK, wait=True)
        if lock is None:
            raise SpoolError("The lock of the spool was not given")
        return lock

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock of all appends for the length of a block."""
        lock = self.hold()
        try:
            yield
        finally:
            lock.release()

    def try_replay_lock(self) -> Lock | None:
        """The right to replay, which one process has at a time; ``None`` if another has it."""
        return self._folder.lock(_REPLAY_LOCK, wait=False)

    # ------------------------------------------------------------ appending

    def append(self, entries: Sequence[Entry], *, insist: bool) -> bool:
        """Puts records on the disk, in this order, with one synchronisation.

        Args:
            entries: at least one.
            insist: begins the spool if it has not begun; else it must have, or each request must have a partition that
                is held back, or nothing is written.

        Returns:
            Whether they are on the disk; false if the spool has ended meanwhile for any of them.

        Raises:
            SpoolFullError: no room; nothing was written.
            SpoolError: the disk failed; nothing was written.
        """
        try:
            with self.held():
                return self._append(entries, insist=insist)
        except OSError as problem:
            raise _spool_error(problem) from problem

    def _append(self, entries: Sequence[Entry], *, insist: bool) -> bool:
        joining: frozenset[Partition] | None = None
        if not insist and not self.spooling:
            held = self.held_back
            places = [partitions for entry in entries for partitions in entry.partitions]
            if not all(held.keys() & partitions for partitions in places):
                return False
            joining = frozenset[Partition]().union(*places) - held.keys()
        data = b"".join([entry.frame for entry in entries])
        ledger = self._ledger()
        if ledger.size + len(data) > self._limits.bytes_max:
            raise SpoolFullError(
                f"The spool is full: {ledger.size} bytes wait, FILE_BUFFER_MAX_BYTES is {self._limits.bytes_max}"
            )
        try:
            if joining is None:
                self.set_flag(SPOOLING, True)
            elif joining:
                self._hold_too(joining)
            if ledger.current and not self._folder.exists(_writing(ledger.current)):
                # A disk that failed while the file was completed gave it its new name. Its number may come again.
                ledger = ledger.changed(current=0, end=0, current_requests=0)
                self._note(ledger)
            if not ledger.current:
                ledger = self._begin_file(ledger)
            self._write(_writing(ledger.current), data, ledger.end)
            requests = sum([entry.requests for entry in entries])
            ledger = ledger.changed(
                end=ledger.end + len(data),
                current_requests=ledger.current_requests + requests,
                requests=ledger.requests + requests,
                messages=ledger.messages + sum([entry.messages for entry in entries]),
                size=ledger.size + len(data),
                oldest_at=ledger.oldest_at or self._clock(),
            )
            self._note(ledger)
        except OSError:
            self._abandon_file(self._ledger())
            raise
        self._complete_large_file(ledger)
        return True

    def _hold_too(self, partitions: Collection[Partition]) -> None:
        """Before a request is answered that waits behind another partition: later pushes may not overtake it."""
        now = self._clock()
        self.note_held({**self.held_back, **{key: Held(*key, now, BEHIND) for key in sorted(partitions)}})

    def try_disk(self) -> bool:
        """Whether the disk takes something, which is removed again."""
        try:
            with self.held():
                try:
                    self._folder.append(_TRIAL, bytes(_TRIAL_BYTES))
                    self._folder.sync(_TRIAL)
                finally:
                    self._folder.remove(_TRIAL)
        except OSError:
            return False
        return True

    def _complete_large_file(self, ledger: Ledger) -> None:
        limits = self._limits
        if ledger.end < limits.file_bytes_max and ledger.current_requests < limits.file_requests_max:
            return
        try:
            self._complete_file(ledger)
        except OSError as problem:
            # The records are safe under the old name too; the next append tries again.
            log.warning("The spool file %s could not be completed: %s", _writing(ledger.current), problem)

    def _begin_file(self, ledger: Ledger) -> Ledger:
        number = max([_number(name) for name in self._folder.names()], default=0) + 1
        header = encode_header(Header(uuid4(), self._installation, self._clock()))
        name = _writing(number)
        self._folder.append(name, header)
        self._folder.sync(name)
        self._folder.sync_names()
        ledger = ledger.changed(current=number, end=len(header), current_requests=0, size=ledger.size + len(header))
        self._note(ledger)
        return ledger

    def _write(self, name: str, data: bytes, end: int) -> None:
        if self._folder.exists(name) and self._folder.size(name) > end:
            # A writer died between its write and its answer.
            self._folder.truncate(name, end)
        self._folder.append(name, data)
        self._folder.sync(name)

    def _abandon_file(self, ledger: Ledger) -> None:
        """After a failed write or sync: nothing more goes into this file, and what was not answered is cut off."""
        if not ledger.current:
            return
        try:
            self._folder.truncate(_writing(ledger.current), ledger.end)
            self._complete_file(ledger)
        except OSError as problem:
            log.warning("The spool file %s could not be closed: %s", _writing(ledger.current), problem)

    def _complete_file(self, ledger: Ledger) -> Ledger:
        """Gives the file that is being written its final name."""
        self._folder.rename(_writing(ledger.current), _complete(ledger.current))
        self._folder.sync_names()
        ledger = ledger.changed(current=0, end=0, current_requests=0)
        self._note(ledger)
        return ledger

    # ------------------------------------------------------------ replaying

    def waiting_files(self) -> list[str]:
        """The complete files, oldest first."""
        return sorted([name for name in self._folder.names() if name.endswith(_COMPLETE)], key=_number)

    def complete(self) -> int:
        """Completes the file that is being written, if it holds something; the caller holds the lock.

        Returns:
            The bytes in all complete files.
        """
        ledger = self._ledger()
        for name in self._folder.names():
            if name == _writing(ledger.current):
                self._folder.truncate(name, ledger.end)
                self._complete_file(ledger)
            elif name.endswith(_WRITING):
                self._recover_file(name)  # the ledger was lost
        return sum([self._folder.size(name) for name in self.waiting_files()])

    def read(self, name: str) -> SpoolFile:
        """A file, waiting or failed."""
        return read_file(self._folder.read(name))

    def note_replayed(self, requests: int, messages: int, written_at: float, rate: float) -> None:
        """So much has been replayed, up to what was written at that time; the caller holds the lock."""
        ledger = self._ledger()
        self._note(
            ledger.changed(
                requests=max(ledger.requests - requests, 0),
                messages=max(ledger.messages - messages, 0),
                oldest_at=written_at,
                replayed=ledger.replayed + messages,
                rate=rate,
            )
        )

    def remove_replayed(self, name: str) -> None:
        """Removes a file of which PostgreSQL has everything; the caller holds the lock."""
        self._held_ends.pop(name, None)
        size = self._folder.size(name)
        self._folder.remove(name)
        self._folder.sync_names()
        ledger = self._ledger()
        self._note(ledger.changed(size=max(ledger.size - size, 0)))

    def cut_out(self, name: str, damage: Damage) -> bytes:
        """The damaged bytes of a file."""
        return self._folder.read(name)[damage.start : damage.end]

    def set_aside(self, file: SpoolFile, name: str, place: int, record: Record | bytes) -> str:
        """Puts what PostgreSQL refused into a file of its own, durably; the same again if it is done twice.

        Args:
            file: where it comes from.
            name: the name of that file.
            place: the number of the request in it.
            record: with its reason, or bytes that cannot be read.

        Returns:
            The name of the new file.
        """
        header = Header(
            uuid5(file.header.file if file.header else self._installation, f"{name} {place}"),
            self._installation,
            self._clock(),
        )
        content = record if isinstance(record, bytes) else encode_header(header) + encode_record(record)
        stem = f"{_number(name):012d}-{place}"
        if self._folder.exists(stem + _MAKING):
            self._folder.remove(stem + _MAKING)
        self._folder.append(stem + _MAKING, content)
        self._folder.sync(stem + _MAKING)
        self._folder.rename(stem + _MAKING, stem + _FAILED)
        self._folder.sync_names()
        return stem + _FAILED

    def end(self, held: Mapping[Partition, Held]) -> bool:
        """Ends the spool if nothing waits, but for what is held back; the caller holds the lock.

        Args:
            held: the partitions that are held back from now on, and no others.

        Returns:
            False if something waits.
        """
        ledger = self._ledger()
        if self.files():
            return False
        if not self.held_files():
            self._note(Ledger(replayed=ledger.replayed))
        self.note_held(held)
        self.set_flag(SPOOLING, False)
        return True

    def give_up(self, name: str) -> str:
        """Sets a file aside whole, which cannot be read; its new name. The caller holds the lock."""
        failed = name.partition(".")[0] + (_HELD_FAILED if is_held_back(name) else _FAILED)
        self._folder.rename(name, failed)
        self._folder.sync_names()
        return failed

    # ------------------------------------------------------------ start

    def recover(self) -> None:
        """Makes the folder whole after whatever end: to be called before the first push.

        Raises:
            SettingError: the folder holds messages for another database.
            OSError: the disk failed.
        """
        with self.held():
            for name in self._folder.names():
                if name.endswith(_WRITING):
                    self._recover_file(name)
                elif name.endswith(_MAKING):
                    self._folder.remove(name)
            self._folder.sync_names()
            ledger, held = Ledger(), dict[Partition, Held]()
            for name in (*self.waiting_files(), *self.held_files()):
                try:
                    file = self.read(name)
                except OSError as problem:
                    # One file shall not keep a server from starting: the replay sets it aside.
                    log.error("The spool file %s cannot be read: %s", name, problem)  # noqa: TRY400 - it says it all
                    held |= self.held_back if is_held_back(name) else {}
                    continue
                counted = self._counted(ledger, file, self._folder.size(name))
                if is_held_back(name):
                    held |= _held_in(file)
                    if self.waits(name):  # its requests are counted there
                        counted = ledger.changed(size=counted.size)
                ledger = counted
            self._note(ledger)
            self.note_held({key: self.held_back.get(key, each) for key, each in held.items()})
            if self.waiting_files():
                self.set_flag(SPOOLING, True)

    def _recover_file(self, name: str) -> None:
        try:
            file = self.read(name)
        except OSError as problem:
            log.error("The spool file %s cannot be read: %s", name, problem)  # noqa: TRY400 - it says it all
            self._folder.rename(name, _complete(_number(name)))
            return
        if file.header is None or not file.records:
            # Its header had not reached the disk, or nothing was written behind it: nobody was answered.
            self._folder.remove(name)
            return
        if isinstance(torn := file.records[-1], Damage) and torn.torn:
            log.warning(
                "The end of spool file %s was torn: %d bytes that nobody was answered", name, torn.end - torn.start
            )
            self._folder.truncate(name, torn.start)
            self._folder.sync(name)
        self._folder.rename(name, _complete(_number(name)))

    def _counted(self, ledger: Ledger, file: SpoolFile, size: int) -> Ledger:
        self.check_installation(file)
        return ledger.changed(
            requests=ledger.requests + file.requests,
            messages=ledger.messages + file.messages,
            size=ledger.size + size,
            oldest_at=ledger.oldest_at or (file.header.created_at if file.header else 0.0),
        )

    def check_installation(self, file: SpoolFile) -> None:
        """Raises SettingError if a file holds messages for another database."""
        if file.header and file.header.installation != self._installation:
            raise SettingError(
                f"The spool folder {getattr(self._folder, 'path', '')} holds messages for another database: set "
                "FILE_BUFFER_DIR to another folder, or start with the database that they are for"
            )

    # ------------------------------------------------------------ people

    def state(self) -> SpoolState:
        """What the spool looks like now."""
        ledger, held, failed = self._ledger(), self.held_back.values(), self.failed_files()
        now = self._clock()
        failed_since = self.told_of_failed(failed[0]).since if failed else now
        held_since = min([each.since for each in held], default=now)
        oldest_at = min(ledger.oldest_at, held_since) if ledger.requests else held_since
        return SpoolState(
            spooling=self.spooling,
            requests=ledger.requests,
            messages=ledger.messages,
            bytes=ledger.size,
            oldest_age_s=max(now - oldest_at, 0.0),
            replay_rate=ledger.rate if ledger.requests else 0.0,
            replayed=ledger.replayed,
            failed=len(failed),
            bytes_max=self._limits.bytes_max,
            held_partitions=len(held),
            held_age_s=max(now - held_since, 0.0),
            held_codes=sorted({each.code for each in held}),
            failed_age_s=max(now - (failed_since or now), 0.0),
        )

    def told_of_failed(self, name: str) -> SetAside:
        """Since when a file is set aside, and why. It never changes, so it is read once."""
        if name not in self._known_failed:
            try:
                file = self.read(name)
            except OSError:
                return SetAside(name, 0.0, "cannot be read")
            reasons = [record.reason for record in file.records if isinstance(record, Record)]
            since = file.header.created_at if file.header else 0.0
            self._known_failed[name] = SetAside(name, since, next(iter(reasons), "cannot be read"))
        return self._known_failed[name]

    def files(self) -> list[str]:
        """The files that wait, also the one being written, oldest first."""
        return sorted(filter(is_waiting, self._folder.names()), key=_number)

    def failed_files(self) -> list[str]:
        """The files that were set aside, in the order in which they were pushed."""
        return sorted(filter(is_failed, self._folder.names()), key=lambda name: (_number(name), _place(name)))

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._folder.size(name)

    def replay_failed(self, name: str) -> str:
        """Lines a file that was set aside up to be replayed; its new name."""
        file = self.read(name)
        if file.header is None:
            raise SpoolError(f"{name} cannot be read, so it cannot be replayed: look at it, then discard it")
        with self.held():
            self.complete()
            ledger = self._counted(self._ledger(), file, self._folder.size(name))
            if name.endswith(_HELD_FAILED):
                # PostgreSQL knows by its name how far it is stored.
                self.note_held({**_held_in(file), **self.held_back})
                new = held_file_of(name)
            else:
                new = _complete(max([_number(each) for each in self._folder.names()]) + 1)
            self._folder.rename(name, new)
            self._folder.sync_names()
            self._note(ledger)
            self.set_flag(SPOOLING, True)
        return new

    def discard(self, name: str) -> None:
        """Removes a file for good, with the messages in it."""
        self._folder.remove(name)
        self._folder.sync_names()

    # ------------------------------------------------------------ ledger

    def _ledger(self) -> Ledger:
        if not self._folder.exists(_LEDGER):
            return Ledger()
        return decode(self._folder.read(_LEDGER)) or Ledger()

    def _note(self, ledger: Ledger) -> None:
        self._folder.overwrite(_LEDGER, encode(ledger))


def _held_in(file: SpoolFile) -> dict[Partition, Held]:
    since = file.header.created_at if file.header else 0.0
    records = [record for record in file.records if isinstance(record, Record)]
    return {
        key: Held(*key, since, record.reason)
        for record in reversed(records)
        for request in record.requests
        for key in _partitions_of(request)
    }


def held_file_of(name: str) -> str:
    """The file for what of another one is held back."""
    return f"{_number(name):012d}{_HELD_BACK}"


def _writing(number: int) -> str:
    return f"{number:012d}{_WRITING}"


def _complete(number: int) -> str:
    return f"{number:012d}{_COMPLETE}"


def _spool_error(problem: OSError) -> SpoolError:
    if problem.errno in NO_ROOM:
        return SpoolFullError(f"The disk of the spool is full: {problem}")
    return SpoolError(f"The spool cannot be written: {problem}")
