"""The files of the spool and the rules for changing them. Synchronous; every step is one call of ``Folder``.

======================= ============================================================================================
``N.buf.tmp``           being written; N counts up
``N.buf``               complete, waits to be replayed
``N.held``              requests of file N that cannot be stored yet, or follow such a request: held back
``….failed``            set aside: PostgreSQL refused it for its data, or it cannot be read
``spooling``            the flag of the instance: while it exists, every worker spools
``held-back``           while it exists, every worker spools pushes to the partitions listed in it
``maintenance``         while it exists, nothing is replayed; ``pop-maintenance``: while it exists, pops get no messages
``encrypted-queues``    the queues whose payloads are encrypted before they are spooled, as a JSON array
``sqs-queues``          the queues of SQS that workers have used, a JSON object a line; the last one of a name counts
``ledger``, ``*.lock``  counts, and locks of the operating system
======================= ============================================================================================

**Order.** Appending, rotating and ending the spool need ``append.lock``, so records are in the order of their answers:
a push that arrives after the answer to another is stored after it. The flag is set before the first answer, and removed
under the lock when no messages are left.

**Crashes.** Appending is ``write`` and ``sync`` before the answer. A file gets the name ``N.buf`` when it is complete,
and is removed when PostgreSQL has committed all of it. Only PostgreSQL stores the replay position of a file, in the
transaction that stores the messages, so a crash at any time is safe. Requests that are held back are durable in
``N.held`` before PostgreSQL stores a position after them. Only the process that replays writes ``N.held``.
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
    SpooledBatch,
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
_SQS_QUEUES = "sqs-queues"
_LEDGER, _APPEND_LOCK, _REPLAY_LOCK, _QUEUES_LOCK = "ledger", "append.lock", "replay.lock", "sqs-queues.lock"
_TRIAL, _TRIAL_BYTES = "trial", 64 << 10
_WRITING, _COMPLETE, _FAILED, _MAKING = ".buf.tmp", ".buf", ".failed", ".failed.tmp"
_HELD_BACK, _HELD_FAILED = ".held", "-held.failed"


class Limits(Struct, frozen=True):
    """Limits of the spool, and of a file."""

    bytes_max: int = 1 << 30
    file_requests_max: int = 10_000
    file_bytes_max: int = 16 << 20


class Entry(Struct, frozen=True):
    """A record to append: its frame, its counts, and the ``partitions`` of each request."""

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


def _partitions_of(request: Sequence[SpooledBatch]) -> frozenset[Partition]:
    return frozenset([(batch.queue, batch.partition) for batch in request])


def _number(name: str) -> int:
    digits = name.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _index(name: str) -> int:
    digits = name.partition(".")[0].partition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def is_waiting(name: str) -> bool:
    """Whether a file has requests to replay."""
    return name.endswith((_COMPLETE, _WRITING)) and _number(name) > 0


def is_held_back(name: str) -> bool:
    """Whether a file has requests that are held back."""
    return name.endswith(_HELD_BACK) and _number(name) > 0


def is_failed(name: str) -> bool:
    """Whether a file was set aside."""
    return name.endswith(_FAILED)


class Spool:
    """The spool in one folder. Several processes and threads may each have one on the same folder.

    Args:
        folder: exists, and is writable.
        installation: the database of the messages.
        limits: of the spool.
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
        """Whether a flag is set, by any process."""
        return self._folder.exists(flag)

    @property
    def spooling(self) -> bool:
        """Whether every push of this instance goes to the spool."""
        return self._folder.exists(SPOOLING)

    def set_flag(self, flag: str, on: bool) -> None:
        """Sets or clears a flag; the caller holds the lock, so that it is ordered with appends."""
        if on and not self._folder.exists(flag):
            self._folder.append(flag, b"")
        elif not on and self._folder.exists(flag):
            self._folder.remove(flag)

    # ------------------------------------------------------------ held back

    @property
    def held_back(self) -> Mapping[Partition, Held]:
        """The partitions to which pushes are spooled although the spool has ended for the others.

        Read it after ``spooling``: when that flag is removed, this list is up to date.
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
        """Replaces the list of partitions atomically; the caller holds the lock. A crash of the machine may undo it."""
        if not held:
            self.set_flag(_HELD_PARTITIONS, False)
        elif held != self.held_back:
            self._replace(_HELD_PARTITIONS, encode_held(held.values()))

    def note_reason(self, partitions: Collection[Partition], reason: str) -> None:
        """Updates the reason for some partitions; the caller holds the lock."""
        held = self.held_back
        changed = {key: structs.replace(held[key], reason=reason) for key in partitions if key in held}
        self.note_held({**held, **changed})

    def held_files(self) -> list[str]:
        """The held-back files, oldest first."""
        return sorted(filter(is_held_back, self._folder.names()), key=_number)

    def source_of(self, held_file: str) -> str:
        """The original file of a held-back one; it may be removed already."""
        return _complete(_number(held_file))

    def waits(self, held_file: str) -> bool:
        """Whether the original file still exists, so that the held-back one may grow."""
        return self._folder.exists(self.source_of(held_file))

    def hold_back(self, file: SpoolFile, name: str, records: Sequence[Record]) -> None:
        """Writes requests that cannot be stored yet durably; the caller holds the lock, and replays.

        Args:
            file: id of the original file.
            name: the name of that file.
            records: each with the number of its first request in the original file.
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
        """A held-back file, without a torn end, which was never relied on. ``None`` if it does not exist."""
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
        """The last stored list; ``None`` if there is none."""
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

    # ------------------------------------------------------------ queues of SQS

    @property
    def sqs_queues_size(self) -> int:
        """Bytes of the list of used queues."""
        return self._folder.size(_SQS_QUEUES) if self._folder.exists(_SQS_QUEUES) else 0

    def sqs_queues(self) -> bytes:
        """The list of used queues."""
        return self._folder.read(_SQS_QUEUES) if self._folder.exists(_SQS_QUEUES) else b""

    def note_sqs_queue(self, line: bytes) -> None:
        """Adds a queue to the list; a crash of the machine may undo it. Raises OSError."""
        with self.held(_QUEUES_LOCK):
            self._folder.append(_SQS_QUEUES, b"\n" + line)

    def shorten_sqs_queues(self, shortened: Callable[[bytes], bytes]) -> None:
        """Replaces the list by what a function makes of it, unless that is as long. Raises OSError."""
        with self.held(_QUEUES_LOCK):
            content = self.sqs_queues()
            if len(short := shortened(content)) < len(content):
                self._replace(_SQS_QUEUES, short)

    def _replace(self, name: str, content: bytes) -> None:
        """Replaces the content of a small file atomically."""
        new = name + _NEW
        if self._folder.exists(new):
            self._folder.remove(new)
        self._folder.append(new, content)
        self._folder.sync(new)
        self._folder.rename(new, name)

    # ------------------------------------------------------------ locks

    def hold(self, name: str = _APPEND_LOCK) -> Lock:
        """Waits for the lock of all appends, or another one."""
        lock = self._folder.lock(name, wait=True)
        if lock is None:
            raise SpoolError("The lock of the spool could not be acquired")
        return lock

    @contextmanager
    def held(self, name: str = _APPEND_LOCK) -> Iterator[None]:
        """Holds the lock of all appends, or another one, for a block."""
        lock = self.hold(name)
        try:
            yield
        finally:
            lock.release()

    def try_replay_lock(self) -> Lock | None:
        """The right to replay, which one process has at a time; ``None`` if another has it."""
        return self._folder.lock(_REPLAY_LOCK, wait=False)

    # ------------------------------------------------------------ appending

    def append(self, entries: Sequence[Entry], *, insist: bool) -> bool:
        """Appends records durably, in this order, with one sync.

        Args:
            entries: at least one.
            insist: starts the spool if it is off. Otherwise records are written only if the spool is on, or if each
                request has a partition that is held back.

        Returns:
            Whether they were written; false if the spool has ended meanwhile for any of them.

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
        spooling = insist or self.spooling
        joining = frozenset[Partition]() if spooling else self._joining(entries)
        if joining is None:
            return False
        data = b"".join([entry.frame for entry in entries])
        ledger = self._ledger()
        if ledger.size + len(data) > self._limits.bytes_max:
            raise SpoolFullError(
                f"The spool is full: it has {ledger.size} bytes, FILE_BUFFER_MAX_BYTES is {self._limits.bytes_max}"
            )
        try:
            if spooling:
                self.set_flag(SPOOLING, True)
            elif joining:
                self._hold_too(joining)
            ledger = self._with_file(ledger)
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

    def _joining(self, entries: Sequence[Entry]) -> frozenset[Partition] | None:
        """Partitions of requests that wait for one that is held back, without those that are known to be.

        ``None`` if one of the requests waits for no other: the spool has ended for it.
        """
        held = self.held_back.keys()
        by_request = [partitions for entry in entries for partitions in entry.partitions]
        if not all(held & partitions for partitions in by_request):
            return None
        return frozenset[Partition]().union(*by_request) - held

    def _hold_too(self, partitions: Collection[Partition]) -> None:
        """Holds back the partitions of a request that waits for another one: later pushes cannot overtake it."""
        now = self._clock()
        self.note_held({**self.held_back, **{key: Held(*key, now, BEHIND) for key in sorted(partitions)}})

    def try_disk(self) -> bool:
        """Whether the disk accepts a test file, which is removed again."""
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
            # The records are safe under the old name, too; the next append tries again.
            log.warning("The spool file %s could not be completed: %s", _writing(ledger.current), problem)

    def _with_file(self, ledger: Ledger) -> Ledger:
        """The ledger with a file to append to."""
        if ledger.current and not self._folder.exists(_writing(ledger.current)):
            # A disk error during the completion may have left the new name. The number may be used again.
            ledger = ledger.changed(current=0, end=0, current_requests=0)
            self._note(ledger)
        return ledger if ledger.current else self._begin_file(ledger)

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
            # A writer died between write and answer.
            self._folder.truncate(name, end)
        self._folder.append(name, data)
        self._folder.sync(name)

    def _abandon_file(self, ledger: Ledger) -> None:
        """After a failed write or sync: closes this file, and removes unanswered records from it."""
        if not ledger.current:
            return
        try:
            self._folder.truncate(_writing(ledger.current), ledger.end)
            self._complete_file(ledger)
        except OSError as problem:
            log.warning("The spool file %s could not be closed: %s", _writing(ledger.current), problem)

    def _complete_file(self, ledger: Ledger) -> Ledger:
        """Renames the current file to its final name."""
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
        """Completes the current file, if it is not empty; the caller holds the lock.

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
        """Adds to the replayed counts, up to records written at a time; the caller holds the lock."""
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
        """Removes a file that is completely in PostgreSQL; the caller holds the lock."""
        self._held_ends.pop(name, None)
        size = self._folder.size(name)
        self._folder.remove(name)
        self._folder.sync_names()
        ledger = self._ledger()
        self._note(ledger.changed(size=max(ledger.size - size, 0)))

    def cut_out(self, name: str, damage: Damage) -> bytes:
        """The damaged bytes of a file."""
        return self._folder.read(name)[damage.start : damage.end]

    def set_aside(self, file: SpoolFile, name: str, number: int, record: Record | bytes) -> str:
        """Writes what PostgreSQL refused to a file of its own, durably; doing it twice has the same result.

        Args:
            file: id of the original file.
            name: the name of that file.
            number: of the request in it.
            record: with its reason, or bytes that cannot be read.

        Returns:
            The name of the new file.
        """
        header = Header(
            uuid5(file.header.file if file.header else self._installation, f"{name} {number}"),
            self._installation,
            self._clock(),
        )
        content = record if isinstance(record, bytes) else encode_header(header) + encode_record(record)
        stem = f"{_number(name):012d}-{number}"
        if self._folder.exists(stem + _MAKING):
            self._folder.remove(stem + _MAKING)
        self._folder.append(stem + _MAKING, content)
        self._folder.sync(stem + _MAKING)
        self._folder.rename(stem + _MAKING, stem + _FAILED)
        self._folder.sync_names()
        return stem + _FAILED

    def end(self, held: Mapping[Partition, Held]) -> bool:
        """Ends the spool if no messages wait except held-back ones; the caller holds the lock.

        Args:
            held: all partitions that are held back from now on.

        Returns:
            False if messages wait.
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
        """Sets an unreadable file aside; returns its new name. The caller holds the lock."""
        failed = name.partition(".")[0] + (_HELD_FAILED if is_held_back(name) else _FAILED)
        self._folder.rename(name, failed)
        self._folder.sync_names()
        return failed

    # ------------------------------------------------------------ start

    def recover(self) -> None:
        """Recovers the folder after any crash. Call it before the first push.

        Raises:
            SettingError: the folder has messages of another database.
            OSError: the disk failed.
        """
        with self.held():
            for name in self._folder.names():
                if name.endswith(_WRITING):
                    self._recover_file(name)
                elif name.endswith(_MAKING) or name == _SQS_QUEUES:
                    self._folder.remove(name)
            self._folder.sync_names()
            ledger, held = Ledger(), dict[Partition, Held]()
            for name in (*self.waiting_files(), *self.held_files()):
                try:
                    file = self.read(name)
                except OSError as problem:
                    # One file must not prevent a start: the replay sets it aside.
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
            # Its header is not on the disk, or nothing follows it: no push was answered.
            self._folder.remove(name)
            return
        if isinstance(torn := file.records[-1], Damage) and torn.torn:
            log.warning(
                "The spool file %s had an incomplete record at its end: %d bytes whose push was never answered",
                name,
                torn.end - torn.start,
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
        """Raises SettingError if a file has messages of another database."""
        if file.header and file.header.installation != self._installation:
            raise SettingError(
                f"The spool folder {getattr(self._folder, 'path', '')} holds messages of another database: "
                "set FILE_BUFFER_DIR to another folder, or start with the database that they belong to"
            )

    # ------------------------------------------------------------ state and failed files

    def state(self) -> SpoolState:
        """The current state of the spool."""
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
        """When and why a file was set aside. This never changes, so it is read once."""
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
        """The waiting files, including the current one, oldest first."""
        return sorted(filter(is_waiting, self._folder.names()), key=_number)

    def failed_files(self) -> list[str]:
        """The files that were set aside, in the order in which they were pushed."""
        return sorted(filter(is_failed, self._folder.names()), key=lambda name: (_number(name), _index(name)))

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._folder.size(name)

    def replay_failed(self, name: str) -> str:
        """Puts a failed file back to be replayed; returns its new name."""
        file = self.read(name)
        if file.header is None:
            raise SpoolError(f"{name} cannot be read, so it cannot be replayed: inspect it, then discard it")
        with self.held():
            self.complete()
            ledger = self._counted(self._ledger(), file, self._folder.size(name))
            if name.endswith(_HELD_FAILED):
                # PostgreSQL stores its replay position under this name.
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
        """Deletes a file with its messages."""
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
    """The held-back file of another file."""
    return f"{_number(name):012d}{_HELD_BACK}"


def _writing(number: int) -> str:
    return f"{number:012d}{_WRITING}"


def _complete(number: int) -> str:
    return f"{number:012d}{_COMPLETE}"


def _spool_error(problem: OSError) -> SpoolError:
    if problem.errno in NO_ROOM:
        return SpoolFullError(f"The disk of the spool is full: {problem}")
    return SpoolError(f"The spool is not writable: {problem}")
