"""The catalogue: every promise of the broker, and on which levels it is checked.

A test, a state machine, a checker or an audit says what it checks with the decorator `checks`. An id, once given,
keeps its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

Subject = TypeVar("Subject", bound="type | Callable[..., object]")


class Level(Enum):
    """Where a guarantee is checked."""

    MODEL = "model"
    """Hypothesis on the reference model, or on a pure part of the server beside it."""
    LIVE = "live"
    """A running server: integration and conformance."""
    FAULTS = "faults"
    """A running server whose processes, database, disk or network fail."""
    AUDIT = "audit"
    """The complete log and the journals after a load test."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise, in terms of what a client can observe.

    A guarantee of kind `safety` says what never happens; one of kind `liveness` what does happen, and by when.
    """

    id: str
    statement: str
    rationale: str
    kind: Literal["safety", "liveness"]
    levels: frozenset[Level]

    @property
    def family(self) -> str:
        """The middle of the id."""
        return self.id.split("-")[1]


@dataclass(frozen=True, slots=True)
class Check:
    """Something that checks guarantees on one level."""

    ids: tuple[str, ...]
    level: Level
    module: str
    name: str

    def __post_init__(self) -> None:
        if unknown := [id_ for id_ in self.ids if id_ not in GUARANTEES]:
            raise ValueError(f"{self.module}.{self.name} checks unknown guarantees: {', '.join(unknown)}")


REGISTRY: list[Check] = []
"""The checks of all modules imported so far."""


def checks(*ids: str, level: Level) -> Callable[[Subject], Subject]:
    """Say which guarantees the decorated thing checks; it stays as it is.

    Raises:
        ValueError: an id is not in the catalogue.
    """

    def record(subject: Subject) -> Subject:
        REGISTRY.append(Check(ids, level, subject.__module__, name_of(subject)))
        return subject

    return record


def name_of(subject: Subject) -> str:
    """The qualified name; a test that Hypothesis has wrapped goes by its own."""
    inner = getattr(getattr(subject, "hypothesis", None), "inner_test", subject)
    return str(inner.__qualname__)


def missing_checks(registry: Iterable[Check]) -> list[tuple[str, Level]]:
    """The levels of guarantees that nothing in the registry checks."""
    there = {(id_, check.level) for check in registry for id_ in check.ids}
    needed = ((id_, level) for id_, guarantee in GUARANTEES.items() for level in Level if level in guarantee.levels)
    return [need for need in needed if need not in there]


_LETTERS = {"M": Level.MODEL, "L": Level.LIVE, "F": Level.FAULTS, "A": Level.AUDIT}


def _safety(id_: str, levels: str, statement: str, rationale: str) -> Guarantee:
    return Guarantee(id_, statement, rationale, "safety", frozenset(_LETTERS[letter] for letter in levels))


def _liveness(id_: str, levels: str, statement: str, rationale: str) -> Guarantee:
    return Guarantee(id_, statement, rationale, "liveness", frozenset(_LETTERS[letter] for letter in levels))


FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "ORD": "Order",
        "DUR": "Durability",
        "IDEM": "Idempotence",
        "POP": "Delivery",
        "LEASE": "Leases",
        "ACK": "Acks",
        "DLQ": "Dead letters",
        "TXN": "Transactions",
        "STR": "Streams",
        "GRP": "Consumer groups",
        "WAIT": "Waiting",
        "RET": "Retention and removal",
        "TIME": "Clocks",
        "ISO": "Isolation of requests",
        "COST": "Cost",
        "SEC": "Security",
        "SPOOL": "Spool",
        "SMQ": "simple-mq",
    }
)

_CATALOGUE: Collection[Guarantee] = (
    _safety(
        "G-ORD-1",
        "MLFA",
        "Within a partition and group, first deliveries come in offset order.",
        "Order in a lane is what a partition is for.",
    ),
    _safety(
        "G-ORD-2",
        "MLFA",
        "A visible offset implies that every smaller one is visible, or was removed by retention or by hand: no gap, "
        "ever.",
        "A message that commits below a cursor which has passed is lost without a trace.",
    ),
    _safety(
        "G-ORD-3",
        "MLFA",
        "Two pushes to a partition where the first was answered before the second was sent keep that order, "
        "through spool and replay too.",
        "A producer that waits for its answer must be able to rely on the order that it saw.",
    ),
    _safety(
        "G-ORD-4",
        "MLA",
        "The messages that one request pushes to a partition have offsets in the order of the request.",
        "A batch is a list, and who sends a list expects a list.",
    ),
    _safety(
        "G-ORD-5",
        "MLA",
        "In a partition `createdAt` never falls from an offset to a higher one; a step back of PostgreSQL's clock "
        "lowers what is later than it to the time of the repair, for all offsets from there on.",
        "Delay, window, retention and seek by time then all select a prefix of the log, whatever the clock does.",
    ),
    _safety(
        "G-DUR-1",
        "FA",
        "An answered push survives `kill -9` of PostgreSQL, of any worker, and of the whole instance.",
        "The answer is the moment at which a producer forgets the message.",
    ),
    _safety(
        "G-DUR-2",
        "FA",
        "An answered ack survives `kill -9` of PostgreSQL, of any worker, and of the whole instance.",
        "A lost ack is a second delivery of work that is known to be done.",
    ),
    _safety(
        "G-DUR-3",
        "MLFA",
        "Every delivered message was pushed to that partition, and has the payload and transaction id of its push.",
        "Bytes that go through fusing, segments, encryption, spool and slicing must come out as they went in.",
    ),
    _safety(
        "G-DUR-4",
        "MLFA",
        "The messages of one push request are stored all or none, except those answered as duplicate or refused.",
        "A producer that got no answer must be able to send the same request again without thinking.",
    ),
    _safety(
        "G-IDEM-1",
        "MLFA",
        "A partition keeps at most one message under a transaction id, whatever is retried, spooled or replayed.",
        "Retrying an unknown outcome is only safe when the repetition is recognised.",
    ),
    _safety(
        "G-IDEM-2",
        "ML",
        "The answer to a duplicate names the message that is stored under its transaction id.",
        "A producer that retried can go on as if its first attempt had been answered.",
    ),
    _safety(
        "G-IDEM-3",
        "MLA",
        "A transaction id that is stored in one partition is stored in another one all the same.",
        "Keys of different lanes are unrelated: a collision must not swallow a message.",
    ),
    _safety(
        "G-IDEM-4",
        "ML",
        "A transaction id in the form of a message id of its partition is never stored for another message.",
        "The server gives out these ids itself, and two messages under one id could not be told apart by an ack.",
    ),
    _safety(
        "G-POP-1",
        "ML",
        "A pop delivers at most `batch` messages from at most `partitions` of the partitions that it asked for, "
        "all under one lease id.",
        "A consumer sizes its work, its memory and its lease by what it asked for.",
    ),
    _safety(
        "G-POP-2",
        "ML",
        "A pop never passes over a partition in favour of one that could be claimed only later.",
        "Otherwise a busy partition starves a quiet one.",
    ),
    _safety(
        "G-POP-3",
        "ML",
        "A pop that meets no other request leaves nothing that it had room for, in messages and in bytes "
        "(`QUEEN_MAX_POP_BYTES`; one message always has room), and takes all it can from a partition before it takes "
        "from the next.",
        "The message of an answered push is there for the next pop, and an answer that is short in both means that "
        "there is no more.",
    ),
    _safety(
        "G-POP-4",
        "ML",
        "A pop of a namespace or task takes from the queue with the higher priority first.",
        "That is all that priority means: it never reorders a partition.",
    ),
    _safety(
        "G-POP-5",
        "ML",
        "With `autoAck` the delivered messages are done for the group when the answer is made, and no lease is left.",
        "At most once, for those who ask for it.",
    ),
    _safety(
        "G-LEASE-1",
        "MLFA",
        "At most one live lease exists for a partition and group, and nothing is delivered to the group beside it.",
        "Two holders are two consumers in one lane: order and exactly-once are gone.",
    ),
    _liveness(
        "G-LEASE-2",
        "MLF",
        "An expired or released lease makes its unacked messages available again, within the lease time plus one "
        "second, by PostgreSQL's clock; of one that steps back, soon after that (`G-TIME-2`).",
        "A consumer that dies delays its messages, and no more than that.",
    ),
    _safety(
        "G-LEASE-3",
        "MLFA",
        "A stale or foreign lease id can neither ack nor renew, and changes nothing.",
        "A slow consumer wakes up after its work was given to another one.",
    ),
    _safety(
        "G-LEASE-4",
        "ML",
        "A renewal moves the end of a live lease to the later of its end and now plus the seconds asked for, by "
        "PostgreSQL's clock, and never revives an ended one.",
        "A heartbeat that comes late or asks for little must do no harm.",
    ),
    _safety(
        "G-LEASE-5",
        "MLA",
        "`deliveryAttempt` is 1 at the first delivery of a message to a group, and higher at each later one.",
        "Consumers decide by it how careful to be with a message.",
    ),
    _safety(
        "G-LEASE-6",
        "ML",
        "A lease acks only messages up to the last one that its pop delivered.",
        "Nobody can be done with what they have not seen.",
    ),
    _safety(
        "G-ACK-1",
        "MLFA",
        "A cursor never moves back, unless its group is put somewhere by a seek or deleted.",
        "Late, repeated and disordered acks are everyday events.",
    ),
    _safety(
        "G-ACK-2",
        "MLFA",
        "A completed message is never delivered again to that group, unless it is put somewhere by a seek or deleted.",
        "Work that is known to be done is not done twice.",
    ),
    _liveness(
        "G-ACK-3",
        "MLFA",
        "A delivered message that is not completed is delivered again until its group gives it up or it is removed: "
        "never lost.",
        "A cursor that jumps over a gap would drop what lies in it.",
    ),
    _safety(
        "G-ACK-4",
        "ML",
        "Outside of a transaction, acking a completed message as `completed` succeeds and changes nothing, and any "
        "other ack of it is refused.",
        "A client that got no answer may send its ack again.",
    ),
    _safety(
        "G-ACK-5",
        "ML",
        "A lease ends with the ack that leaves nothing undone under it, or that sends a message back.",
        "A partition does not wait for the end of a lease that nobody needs.",
    ),
    _safety(
        "G-ACK-6",
        "ML",
        "After a `failed` ack nothing of that partition is delivered to the group before `retryDelay` is over.",
        "A downstream system that is away needs time, and order forbids to go around the message.",
    ),
    _safety(
        "G-ACK-7",
        "LF",
        "An ack that is answered as refused has changed nothing; one of which nobody can tell is answered as an error.",
        "Who is told that a message was not given back waits for the end of a lease that is over.",
    ),
    _safety(
        "G-ACK-8",
        "ML",
        "A pop that comes with acks finds what they set free, changes nothing of what becomes of them, and holds "
        "nothing of what it found when they are answered as an error.",
        "Who saves a request must not lose an answer or a message by it.",
    ),
    _safety(
        "G-DLQ-1",
        "MLFA",
        "A message that fails again and again is dead-lettered after exactly `retryLimit` retries, once, with payload "
        "and error.",
        "One early loses a chance, one late blocks the lane, twice is noise for whoever cleans up.",
    ),
    _safety(
        "G-DLQ-2",
        "MLA",
        "Only a message's own `failed` acks count as its failures: not its neighbours', a `retry`, or an expiry.",
        "A poisonous message must not take its batch with it.",
    ),
    _liveness(
        "G-DLQ-3",
        "ML",
        "A dead-lettered message holds nothing up: the message after it is delivered to the group.",
        "Parking the poison is what frees the lane.",
    ),
    _safety(
        "G-DLQ-4",
        "ML",
        "In a queue with `deadLetterQueue` and `dlqAfterMaxRetries` both false a message that is given up leaves no "
        "dead letter, unless an operator moves it there.",
        "Some streams are worth retrying and not worth keeping.",
    ),
    _safety(
        "G-DLQ-5",
        "L",
        "A dead letter keeps its payload and error when retention removes its message.",
        "People look at dead letters days later.",
    ),
    _safety(
        "G-DLQ-6",
        "ML",
        "A move to the dead letters leaves one for each group that had not done the message, and delivers it to none "
        "of them again; a replay takes the dead letter away in the transaction that stores the message at the tail.",
        "Whoever repairs by hand must not lose a message, or make two of one.",
    ),
    _safety(
        "G-TXN-1",
        "MLFA",
        "A transaction's acks and pushes all happen or none does, under every fault.",
        "Half of a transaction is a lost or a doubled message.",
    ),
    _safety(
        "G-TXN-2",
        "MLFA",
        "consume-transform-produce with crashes anywhere produces each output exactly once.",
        "This is what transactions are for.",
    ),
    _safety(
        "G-TXN-3",
        "MLF",
        "A transaction that acks what is already done, or what it pushes itself, or names a lease that is not live, "
        "changes nothing.",
        "The late twin of a transaction would push its output a second time.",
    ),
    _safety(
        "G-STR-1",
        "MLF",
        "The ack of a stream's cycle, its writes of state and its outputs all happen or none does, under every fault.",
        "A count that is stored without its input being acked is counted twice.",
    ),
    _safety(
        "G-STR-2",
        "MLF",
        "A cycle that is sent again, or after its lease has ended, and a flush of state that somebody else has flushed "
        "or may be changing, change nothing and are answered as failed.",
        "Workers of a stream come and go and repeat themselves, and its results still count every message once.",
    ),
    _safety(
        "G-STR-3",
        "MLF",
        "The messages that a socket has delivered, whose ack it has not answered and whose lease lives, are never more "
        "than its credit.",
        "A consumer says how much it can hold, and a slow one must not hoard what others could do.",
    ),
    _safety(
        "G-STR-4",
        "ML",
        "A window holds consecutive messages of one partition that are of one slot of time, no more than its limit, "
        "and is delivered only when it is full or its slot is over.",
        "Who aggregates over a window trusts that nothing more belongs to it.",
    ),
    _liveness(
        "G-STR-5",
        "LF",
        "What a socket holds when it ends is available to others at once, and when its worker is killed at the end of "
        "the lease, at most one second later.",
        "Nobody can ack on a socket that is gone.",
    ),
    _safety(
        "G-GRP-1",
        "MLFA",
        "Groups do not affect each other; each sees every message from its subscription point.",
        "Adding a reader must be safe for those who are there.",
    ),
    _safety(
        "G-GRP-2",
        "ML",
        "A group starts where its first pop on a queue says, and no later pop changes that.",
        "Every consumer of a group sends the same parameters at each pop, and only the first of all may count.",
    ),
    _safety(
        "G-GRP-3",
        "MLA",
        "A partition made after a group is delivered to the group whole, except what is not younger than its "
        "`subscriptionFrom`.",
        "Who skips history does not want to skip the future.",
    ),
    _safety(
        "G-GRP-4",
        "ML",
        "A pop that names no group, on a queue that does not exist, leaves no trace.",
        "A mistyped name in a polling loop must not fill the catalogue.",
    ),
    _safety(
        "G-GRP-5",
        "ML",
        "After a seek the group gets exactly what lies behind the place, in order, also what it had done; leases that "
        "lived there are over, and failures and deliveries count from new.",
        "A rewind is for working through it all again.",
    ),
    _safety(
        "G-GRP-6",
        "ML",
        "Changing the stored start of a group moves none of its cursors.",
        "It corrects what a listing says, and must not repeat or skip work.",
    ),
    _safety(
        "G-GRP-7",
        "ML",
        "A deleted group is made anew by its next pop, as that says; put back, it begins where its stored start says.",
        "Cleaning up after an experiment must leave nothing that the next one meets.",
    ),
    _liveness(
        "G-WAIT-1",
        "LF",
        "A waiter is answered after its timeout at the latest, and soon after a message is available.",
        "Long polls carry the latency of an idle system.",
    ),
    _safety(
        "G-WAIT-2",
        "ML",
        "No message is delivered before it is `delayedProcessing` seconds old by PostgreSQL's clock.",
        "Whoever sets a delay relies on it, for instance to let another system catch up.",
    ),
    _safety(
        "G-WAIT-3",
        "ML",
        "While the youngest message of a partition is younger than `windowBuffer` seconds, by PostgreSQL's "
        "clock, the partition delivers nothing.",
        "A burst is to be handled as one batch.",
    ),
    _safety(
        "G-WAIT-4",
        "LF",
        "A waiter whose client has gone takes no message and leaves no lease.",
        "Otherwise each client that gives up hides messages for a whole lease.",
    ),
    _safety(
        "G-RET-1",
        "MLA",
        "Retention and eviction remove only what their settings allow, whatever steps PostgreSQL's clock makes "
        "(`G-TIME-1`).",
        "Deleting is the one thing that no retry repairs.",
    ),
    _safety(
        "G-RET-2",
        "ML",
        "`completedRetentionSeconds` never removes a message that some group of its queue has not completed.",
        "The slowest reader decides.",
    ),
    _safety(
        "G-RET-3",
        "ML",
        "Deleting a queue removes its messages, groups, leases and dead letters, and a push to the name makes a new "
        "queue.",
        "Clients delete before they create.",
    ),
    _liveness(
        "G-RET-4",
        "L",
        "What retention may remove is gone one retention interval later, while the service runs; what was stored "
        "before a step of PostgreSQL's clock forward, once it is as old as that by time that was measured.",
        "A disk that fills is an outage.",
    ),
    _safety(
        "G-RET-5",
        "ML",
        "A deleted message is delivered to no group again, whenever the group came into being and wherever it is put; "
        "its offset stays taken, and the messages around it keep theirs.",
        "What was deleted for a reason must not come back with a rewind.",
    ),
    _safety(
        "G-RET-6",
        "ML",
        "Eviction gives up, for each group, exactly what has waited longer than `maxWaitTimeSeconds` and is under no "
        "live lease, and leaves a dead letter of it unless the queue keeps none.",
        "The original deletes it without a trace.",
    ),
    _safety(
        "G-RET-7",
        "ML",
        "Clean-up removes a partition only if it is empty and idle; a push that meets it is stored all the same.",
        "Somebody may just be about to push to it.",
    ),
    _safety(
        "G-RET-8",
        "ML",
        "No push leaves more than `maxSize` messages in a queue that some group has still to complete; a request that "
        "does not fit is refused whole, and fails nobody else's.",
        "Back-pressure that lets some through is none.",
    ),
    _safety(
        "G-TIME-1",
        "MF",
        "Nothing is removed or given up for its age before so much time has passed as the servers have measured it, "
        "however far PostgreSQL's clock steps forward, unless an operator accepts the step.",
        "A clock that is wrong for a minute must not delete what no retry brings back.",
    ),
    _liveness(
        "G-TIME-2",
        "MF",
        "Soon after PostgreSQL's clock has stepped back, while the services run, no lease, retry or delay lasts longer "
        "than its queue or its request says, and no message of the log was created later than now.",
        "A lease of two seconds must not live an hour because a clock was an hour ahead.",
    ),
    _safety(
        "G-ISO-1",
        "LF",
        "One request's bad data, or the time that it takes, never fails another's, and for a lock that only another "
        "needs no request waits longer than 50 ms at a time.",
        "Requests of strangers are fused into one call.",
    ),
    _safety(
        "G-ISO-2",
        "ML",
        "Every item of a request is judged by itself and has its own result, in the order of the request.",
        "Clients read the answer by position.",
    ),
    _safety(
        "G-ISO-3",
        "L",
        "A malformed request is answered with a 4xx that names the field, stores nothing, and stops no worker.",
        "The sender has to learn what is wrong, and nobody else notices.",
    ),
    _safety(
        "G-ISO-4",
        "L",
        "A refused ack, an unknown lease, a failed transaction and a pop of an unknown queue are answers with a 2xx.",
        "The published consumers stop for good on a 4xx.",
    ),
    _safety(
        "G-COST-1",
        "L",
        "What a request costs PostgreSQL, in CPU and in blocks looked at, grows no faster than what it gives and gets, "
        "whatever else is stored.",
        "One request, or an ordinary shape of data, must not stop the queue for everybody.",
    ),
    _safety(
        "G-SEC-1",
        "ML",
        "No route answers without the access level it needs; `producerSub` comes from the token alone.",
        "What a client says about itself proves nothing.",
    ),
    _safety(
        "G-SEC-2",
        "ML",
        "A token that is expired, not yet valid, signed with another key or algorithm, or not signed, is refused.",
        "Each of these has been a hole in somebody's server.",
    ),
    _safety(
        "G-SEC-3",
        "LF",
        "The payload of an encrypted queue stands nowhere in clear: not in a table, a spool file or a log.",
        "The database, its backups and the disk belong to others.",
    ),
    _safety(
        "G-SEC-4",
        "L",
        "Encryption is refused when there is no key, instead of storing in clear.",
        "A silent fallback is found by the auditor.",
    ),
    _safety(
        "G-SEC-5",
        "ML",
        "An encrypted payload that was changed, moved to another place or stored under an unknown key is never "
        "delivered as data; the messages beside it are.",
        "Who can write to the disk must not be able to write messages.",
    ),
    _safety(
        "G-SPOOL-1",
        "MF",
        "A push that is answered while PostgreSQL is away is on disk, synchronised, before the answer.",
        "The promise of an answered push does not depend on the weather.",
    ),
    _safety(
        "G-SPOOL-2",
        "MLFA",
        "A spooled message is stored exactly once, however often the replay is killed or repeated.",
        "Recovery is where crashes come in pairs.",
    ),
    _safety(
        "G-SPOOL-3",
        "MF",
        "After a crash at any byte, everything that was answered is replayed, and a torn end is dropped only if it "
        "never was.",
        "The last write before a crash is the one that is half done.",
    ),
    _safety(
        "G-SPOOL-4",
        "MF",
        "With a full disk or spool a push is answered 503 with `Retry-After`, never as a success.",
        "A producer that knows can keep its message.",
    ),
    _safety(
        "G-SPOOL-5",
        "MF",
        "A record that PostgreSQL refuses for its data is set aside with the reason, and those behind it are replayed.",
        "One bad record must neither vanish nor block.",
    ),
    _liveness(
        "G-SPOOL-6",
        "F",
        "Once PostgreSQL answers again the spool drains, and direct pushes resume, except to partitions that are held "
        "back.",
        "A buffer that stays is an outage that nobody sees.",
    ),
    _safety(
        "G-SPOOL-7",
        "MF",
        "A push that was sent when another of its partition had been answered is stored behind it, whichever of them "
        "went through the spool.",
        "An outage must not turn the order of a partition around, neither when it begins nor when it ends.",
    ),
    _liveness(
        "G-SPOOL-8",
        "MF",
        "Within 2 seconds of the moment at which PostgreSQL refuses, resets or just stops answering, pushes go to the "
        "spool.",
        "A connection that hangs says nothing for minutes, and producers do not wait that long.",
    ),
    _safety(
        "G-SPOOL-9",
        "MF",
        "A spooled request that cannot be stored yet, and that PostgreSQL does not refuse for its data, holds back "
        "only its own partitions and those of requests behind it in them; it is tried again until it is stored.",
        "It was answered, so it must not be lost, and it must not stop the others.",
    ),
    _safety(
        "G-SMQ-1",
        "MLFA",
        "A polled message is given to no other poller before its visibility timeout is over.",
        "The timeout is the time in which the work belongs to one consumer.",
    ),
    _safety(
        "G-SMQ-2",
        "MLA",
        "The delivery count in a poll's answer is 1 at the first delivery and one more at each next, and, outside "
        "dead-letter queues, never above `maxDeliveries`.",
        "The count decides what becomes of the message.",
    ),
    _safety(
        "G-SMQ-3",
        "MLFA",
        "The first poll that finds a message visible again after its last delivery moves it to the queue's dead-letter "
        "queue, which the first such poll makes, with id, data, creation time and delivery count kept.",
        "No background worker, and no dead-letter queue before there is a dead letter.",
    ),
    _safety(
        "G-SMQ-4",
        "MLFA",
        "The message count of a queue equals its messages after every operation, whatever runs beside it.",
        "A count that drifts closes a queue that is empty, or opens one that is full.",
    ),
    _safety(
        "G-SMQ-5",
        "MLA",
        "Of any number of enqueues at once, a queue accepts exactly those that it has room for, and answers the others "
        "with 429.",
        "The limit is there for the moment when everybody pushes.",
    ),
    _safety(
        "G-SMQ-6",
        "LA",
        "The data of a message comes back character for character.",
        "The queue is a courier and does not open letters.",
    ),
    _liveness(
        "G-SMQ-7",
        "MLFA",
        "A message answered 201 is delivered until it is acked or in the dead-letter queue.",
        "At least once, across crashes of server and database.",
    ),
    _safety(
        "G-SMQ-8",
        "MLFA",
        "An acked message is never seen again, and acking it again is answered 404.",
        "An ack is a delete.",
    ),
    _safety(
        "G-SMQ-9",
        "MLA",
        "A message that its dead-letter queue has no room for stays in its queue, counted and not delivered, and a "
        "dead-letter queue has no dead-letter queue.",
        "Nothing is dropped to keep to a limit.",
    ),
    _safety(
        "G-SMQ-10",
        "ML",
        "A requeued message is visible at once with delivery count 0 in a queue that had room, and its data and "
        "creation time are kept.",
        "Requeueing is the second chance after the fault is mended.",
    ),
    _safety(
        "G-SMQ-11",
        "ML",
        "A peek changes nothing, and its pages show every message that stays, once each, oldest first.",
        "Looking must be safe.",
    ),
    _safety(
        "G-SMQ-12",
        "ML",
        "Messages of a group are delivered one at a time, in the order of their enqueues: the next one only when the "
        "one before it is acked or has had all its deliveries.",
        "Some work has an order, and the rest must not wait for it.",
    ),
    _liveness(
        "G-SMQ-13",
        "L",
        "A poll that waits is answered soon after a message is visible, and at the end of its time at the latest.",
        "A consumer of a quiet queue neither asks all the time nor finds messages late.",
    ),
    _safety(
        "G-SMQ-14",
        "ML",
        "Extending moves the end of a message's invisibility only while it is in flight.",
        "A late heartbeat must not hide what somebody else is about to get.",
    ),
    _safety(
        "G-SMQ-15",
        "ML",
        "The messages of one enqueue are stored all or none.",
        "Half a batch is the worst of all answers.",
    ),
    _liveness(
        "G-SMQ-16",
        "ML",
        "With the sweep switched on, exhausted messages reach the dead-letter queue while nobody polls.",
        "A queue whose consumers have died is the one whose dead letters somebody should see.",
    ),
    _safety(
        "G-SMQ-17",
        "L",
        "A waiting poll whose client has gone takes nothing and counts no delivery.",
        "Otherwise each client that gives up wastes a delivery and hides a message.",
    ),
)

GUARANTEES: Mapping[str, Guarantee] = MappingProxyType({guarantee.id: guarantee for guarantee in _CATALOGUE})
