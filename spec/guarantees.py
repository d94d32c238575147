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

    Attributes:
        title: a few words, for a heading.
        statement: what is promised. The first sentence says it; what follows are conditions.
        rationale: why clients need it.
    """

    id: str
    title: str
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


def _safety(id_: str, levels: str, title: str, statement: str, rationale: str) -> Guarantee:
    return Guarantee(id_, title, statement, rationale, "safety", frozenset(_LETTERS[letter] for letter in levels))


def _liveness(id_: str, levels: str, title: str, statement: str, rationale: str) -> Guarantee:
    return Guarantee(id_, title, statement, rationale, "liveness", frozenset(_LETTERS[letter] for letter in levels))


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
        "PAUSE": "Pauses",
        "RET": "Retention and removal",
        "TIME": "Clocks",
        "ISO": "Isolation of requests",
        "COST": "Cost",
        "SEC": "Security",
        "SPOOL": "Spool",
        "OUT": "Outbox",
        "SQL": "Consuming with SQL",
        "TIM": "Timers",
        "SMQ": "simple-mq",
        "SQS": "SQS",
        "SHARD": "Several databases",
    }
)

_CATALOGUE: Collection[Guarantee] = (
    _safety(
        "G-ORD-1",
        "MLFA",
        "First deliveries in offset order",
        "Within a partition, a consumer group gets messages for the first time in offset order.",
        "Order is the purpose of a partition.",
    ),
    _safety(
        "G-ORD-2",
        "MLFA",
        "No gaps",
        "If an offset is visible, every smaller offset of the partition is visible too, or its message was removed by "
        "retention or by hand.",
        "A message that commits below a cursor which has already passed is lost without a trace.",
    ),
    _safety(
        "G-ORD-3",
        "MLFA",
        "Pushes in sequence keep their order",
        "If one push to a partition is answered before the next is sent, the messages keep that order, also through "
        "the spool and its replay.",
        "A producer that waits for its answer must be able to rely on the order that it saw.",
    ),
    _safety(
        "G-ORD-4",
        "MLA",
        "A request keeps its order",
        "The messages that one request pushes to a partition have offsets in the order of the request.",
        "A batch is a list, and its sender expects a list.",
    ),
    _safety(
        "G-ORD-5",
        "MLA",
        "createdAt never falls",
        "In a partition, `createdAt` never falls from one offset to a higher one. If PostgreSQL's clock steps back, "
        "times later than the clock are lowered to the time of the repair, for all offsets from the first such one "
        "on.",
        "Delay, window, retention and seek by time then always select a prefix of the log, whatever the clock does.",
    ),
    _safety(
        "G-DUR-1",
        "FA",
        "Answered pushes survive",
        "A push that was answered survives `kill -9` of PostgreSQL, of any worker, and of the whole instance.",
        "After the answer, the producer forgets the message.",
    ),
    _safety(
        "G-DUR-2",
        "FA",
        "Answered acks survive",
        "An ack that was answered survives `kill -9` of PostgreSQL, of any worker, and of the whole instance.",
        "A lost ack means that finished work is done a second time.",
    ),
    _safety(
        "G-DUR-3",
        "MLFA",
        "Delivered as pushed",
        "Every delivered message was pushed to that partition, and has the payload and the transaction id of its push.",
        "Payloads go through batches, segments, encryption and the spool, and are cut out again. They must come out "
        "as they went in.",
    ),
    _safety(
        "G-DUR-4",
        "MLFA",
        "All or none per push request",
        "A push request stores all of its messages or none, except those that it answers as duplicate or refused.",
        "A producer that got no answer must be able to send the same request again without thinking.",
    ),
    _safety(
        "G-DUR-5",
        "L",
        "Headers come back as they were sent",
        "A message that was pushed with headers, over HTTP or with SQL, at once or for a time, is delivered with the "
        "same names and values, over HTTP and with SQL, and so is its dead letter and what is replayed of it, also "
        "through encryption and the spool. A message without headers has no such field.",
        "What routes or explains a message must not be lost on the way, and who does not know of it must not meet it.",
    ),
    _safety(
        "G-IDEM-1",
        "MLFA",
        "One message per transaction id",
        "A partition holds at most one message per transaction id, whatever is retried, spooled or replayed.",
        "After an unknown outcome, a retry is safe only if the repetition is recognised.",
    ),
    _safety(
        "G-IDEM-2",
        "MLA",
        "A duplicate names the stored message",
        "The answer to a duplicate contains the id of the message that is stored under its transaction id.",
        "A producer that retried can go on as if its first attempt had been answered.",
    ),
    _safety(
        "G-IDEM-3",
        "MLA",
        "Partitions deduplicate separately",
        "A message is stored in a partition even if another partition holds its transaction id.",
        "Transaction ids of different partitions are unrelated: a collision must not swallow a message.",
    ),
    _safety(
        "G-IDEM-4",
        "ML",
        "Message ids are taken",
        "A transaction id in the form of a message id of its partition is never stored for another message.",
        "The server gives out these ids itself. An ack could not tell two messages with one id apart.",
    ),
    _safety(
        "G-POP-1",
        "MLA",
        "A pop keeps to its limits",
        "A pop delivers at most `batch` messages, from at most `partitions` of the partitions that it asked for, all "
        "under one lease id.",
        "A consumer sizes its work, its memory and its lease by what it asked for.",
    ),
    _safety(
        "G-POP-2",
        "ML",
        "No partition is passed over",
        "A pop never passes over a partition in favour of one that became claimable later. There is one exception, "
        "which lasts less than 0.1 s: a consumer that works through a partition pop by pop may get its next messages "
        "from prefetch.",
        "Otherwise a busy partition starves a quiet one.",
    ),
    _safety(
        "G-POP-3",
        "ML",
        "A pop takes all it has room for",
        "A pop that meets no other request and nothing prefetched takes everything that it has room for, in messages "
        "and in bytes (`QUEEN_MAX_POP_BYTES`; one message always has room). It takes all it can from one partition "
        "before it takes from the next.",
        "The message of an answered push is there for the next pop. An answer that is below both limits means that "
        "there is no more.",
    ),
    _safety(
        "G-POP-4",
        "ML",
        "Priority between queues",
        "A pop of a namespace or task takes from the queue with the higher priority first.",
        "That is all that priority means: it never reorders a partition.",
    ),
    _safety(
        "G-POP-5",
        "ML",
        "autoAck leaves nothing open",
        "With `autoAck`, the group has finished the delivered messages when the answer is made, and no lease is left.",
        "This is at-most-once delivery, for consumers that ask for it.",
    ),
    _safety(
        "G-POP-6",
        "ML",
        "What is ready is what a pop would find",
        "`ready` of a depth, and `queen.has_pending_messages_v1`, say what pops would deliver at that moment, if no "
        "pop maintenance is on. They change nothing.",
        "An autoscaler that counts what is ready must not start consumers for messages that none of them can get.",
    ),
    _safety(
        "G-LEASE-1",
        "MLFA",
        "One lease per partition and group",
        "At most one live lease exists per partition and group. While it lives, nothing else of the partition is "
        "delivered to the group.",
        "With two holders, two consumers work on one partition: order and exactly-once are gone.",
    ),
    _liveness(
        "G-LEASE-2",
        "MLF",
        "A lost consumer delays its messages briefly",
        "When a lease expires or is released, its messages that were not acknowledged are available again within the "
        "lease time plus one second, by PostgreSQL's clock. If that clock steps back meanwhile, they are available "
        "soon after that time (`G-TIME-2`).",
        "A consumer that dies delays its messages, and does no more harm than that.",
    ),
    _safety(
        "G-LEASE-3",
        "MLFA",
        "A stale lease changes nothing",
        "A lease id that is stale, unknown, or of another partition or group can neither ack nor renew, and changes "
        "nothing. What is under a live lease can be acked with that lease only.",
        "A slow consumer may wake up after its messages were given to another one.",
    ),
    _safety(
        "G-LEASE-4",
        "MLA",
        "A renewal only lengthens",
        "A renewal moves the end of a live lease to now plus the requested seconds, by PostgreSQL's clock, unless it "
        "ends later already. It never revives a lease that has ended.",
        "A heartbeat that comes late or asks for little must do no harm.",
    ),
    _safety(
        "G-LEASE-5",
        "MLA",
        "deliveryAttempt counts deliveries",
        "`deliveryAttempt` is 1 at the first delivery of a message to a group, and higher at each later one. It is "
        "also higher at the first one if the message was prefetched when the whole server was killed.",
        "Consumers use it to decide how careful to be with a message.",
    ),
    _safety(
        "G-LEASE-6",
        "MLA",
        "Only delivered messages can be acked",
        "A lease can ack messages only up to the last one that its pop delivered.",
        "A consumer cannot have finished what it has not seen.",
    ),
    _liveness(
        "G-LEASE-7",
        "MLF",
        "Prefetched messages become free again",
        "A prefetched message that no pop asks for is free again within 0.1 s, and that counts as no delivery. What a "
        "killed worker had prefetched is free again as soon as another worker has taken its place. A pop that is no "
        "long poll waits until such messages are free before it answers that there is nothing.",
        "Prefetch is for speed: no message may be late, or be taken for finished, because of it.",
    ),
    _safety(
        "G-ACK-1",
        "MLFA",
        "Cursors never move back",
        "A cursor never moves back, unless its group is moved by a seek or deleted.",
        "Late, repeated and disordered acks are everyday events.",
    ),
    _safety(
        "G-ACK-2",
        "MLFA",
        "A completed message does not come again",
        "A completed message is never delivered to that group again, unless the group is moved by a seek or deleted.",
        "Finished work is not done twice.",
    ),
    _liveness(
        "G-ACK-3",
        "MLFA",
        "No message is lost",
        "A delivered message that its group has not completed is delivered again, until the group gives it up or the "
        "message is removed.",
        "A cursor that jumps over a gap would drop what lies in it.",
    ),
    _safety(
        "G-ACK-4",
        "MLA",
        "An ack may be repeated",
        "Outside a transaction, an ack of a completed message as `completed` succeeds and changes nothing. Any other "
        "ack of it is refused.",
        "A client that got no answer may send its ack again.",
    ),
    _safety(
        "G-ACK-5",
        "ML",
        "When an ack ends a lease",
        "A lease ends with the ack that leaves nothing unfinished under it, or that sends a message back.",
        "A partition does not wait for the end of a lease that is no longer needed.",
    ),
    _safety(
        "G-ACK-6",
        "ML",
        "A pause after a failure",
        "After a `failed` ack, nothing of that partition is delivered to the group until `retryDelay` is over.",
        "A downstream system that is down needs time, and order forbids delivering later messages first.",
    ),
    _safety(
        "G-ACK-7",
        "LF",
        "A refused ack has changed nothing",
        "An ack that is answered as refused has changed nothing. If the server cannot tell what became of an ack, it "
        "answers with an error.",
        "A consumer that is wrongly told that its message was not given back waits for the end of a lease that is "
        "already over.",
    ),
    _safety(
        "G-ACK-8",
        "ML",
        "Acks and a pop in one request",
        "A pop that is sent together with acks gets what these acks free, and does not affect what becomes of them. "
        "If the acks are answered with an error, the pop keeps nothing that it found.",
        "Saving a request must not cost an answer or a message.",
    ),
    _safety(
        "G-DLQ-1",
        "MLFA",
        "Exactly retryLimit retries",
        "A message that keeps failing becomes a dead letter after exactly `retryLimit` retries, once, with its "
        "payload and the error.",
        "Too early loses a chance, too late blocks the partition, and a second dead letter is noise for the operator.",
    ),
    _safety(
        "G-DLQ-2",
        "MLA",
        "Only its own failures count",
        "The failures of a message are its own `failed` acks only: not those of its neighbours, not a `retry`, not an "
        "expired lease.",
        "A poisonous message must not take its batch with it.",
    ),
    _liveness(
        "G-DLQ-3",
        "ML",
        "A dead letter blocks nothing",
        "A dead letter holds nothing up: the group gets the message after it.",
        "A partition goes on because its poisonous message is set aside.",
    ),
    _safety(
        "G-DLQ-4",
        "ML",
        "Queues without dead letters",
        "In a queue in which one of `deadLetterQueue` and `dlqAfterMaxRetries` is false, and the other not true, a "
        "message that is given up leaves no dead letter, unless an operator moves it there.",
        "Some streams are worth retrying and not worth keeping.",
    ),
    _safety(
        "G-DLQ-5",
        "L",
        "Dead letters outlive retention",
        "A dead letter keeps its payload and error when retention removes its message.",
        "People look at dead letters days later.",
    ),
    _safety(
        "G-DLQ-6",
        "ML",
        "Dead letters by hand",
        "Moving a message to the dead letters makes one for each group that had not finished it, and none of these "
        "groups gets it again. A replay stores the message at the log end and removes the dead letter in the same "
        "transaction.",
        "A repair by hand must not lose a message, or make two of one.",
    ),
    _safety(
        "G-TXN-1",
        "MLFA",
        "All or none per transaction",
        "The acks and pushes of a transaction all happen or none does, under every fault.",
        "Half a transaction is a lost message or a duplicated one.",
    ),
    _safety(
        "G-TXN-2",
        "MLFA",
        "Exactly-once processing",
        "A worker that consumes, transforms and produces in one transaction makes each output exactly once, wherever "
        "something crashes.",
        "This is the purpose of transactions.",
    ),
    _safety(
        "G-TXN-3",
        "MLF",
        "A late transaction changes nothing",
        "A transaction changes nothing if it acks a message that is already finished, or one that it pushes itself, "
        "or if it names a lease that is not live.",
        "A late repetition of a transaction would push its output a second time.",
    ),
    _safety(
        "G-STR-1",
        "MLF",
        "All or none per cycle",
        "The ack, the changes of state and the outputs of a stream's cycle all happen or none does, under every fault.",
        "A count that is stored while its input is not acked is counted twice.",
    ),
    _safety(
        "G-STR-2",
        "MLF",
        "A repeated cycle changes nothing",
        "A cycle that is sent again, or after its lease has ended, changes nothing and is answered as failed. A "
        "window close whose state another worker has closed or may be changing does nothing, and the answer says so.",
        "Workers of a stream come and go and repeat themselves, and the results must still count every message once.",
    ),
    _safety(
        "G-STR-3",
        "MLF",
        "Credit bounds what is in flight",
        "A socket never has more messages in flight than its credit. A message counts from its delivery until its ack "
        "is answered or its lease ends.",
        "A consumer says how much it can hold, and a slow one must not hoard what others could process.",
    ),
    _safety(
        "G-STR-4",
        "ML",
        "A window is complete",
        "A window holds consecutive messages of one partition that belong to one slot of time, and no more than its "
        "limit. It is delivered only when it is full or its slot is over.",
        "An aggregate over a window relies on it that nothing more belongs to it.",
    ),
    _liveness(
        "G-STR-5",
        "LF",
        "A socket that ends holds nothing",
        "When a socket ends, the messages that it holds are available to others at once. When its worker is killed, "
        "they are available at the end of the lease, or at most one second later.",
        "A socket that is closed cannot ack.",
    ),
    _safety(
        "G-GRP-1",
        "MLFA",
        "Groups are independent",
        "Groups do not affect each other. Each group gets every message from its subscription point on.",
        "Adding a reader must be safe for the readers that are there.",
    ),
    _safety(
        "G-GRP-2",
        "ML",
        "The first pop decides the start",
        "A group starts where its first pop on a queue says, and no later pop changes that.",
        "Every consumer of a group sends the same parameters with each pop, and only the very first may count.",
    ),
    _safety(
        "G-GRP-3",
        "MLA",
        "Later partitions are delivered whole",
        "If a partition is created after a group, the group gets all of it, except messages that are not younger than "
        "the group's `subscriptionFrom`.",
        "A consumer that skips the past does not want to skip the future.",
    ),
    _safety(
        "G-GRP-4",
        "ML",
        "A pop creates no queue",
        "A pop that names no group, on a queue that does not exist, leaves no trace.",
        "A mistyped name in a polling loop must not fill the catalogue.",
    ),
    _safety(
        "G-GRP-5",
        "ML",
        "A seek replays",
        "After a seek, the group gets exactly the messages after the new position, in order, including those that it "
        "had done. Leases that lived there are over, and failures and deliveries are counted from the beginning.",
        "A rewind is for working through everything again.",
    ),
    _safety(
        "G-GRP-6",
        "ML",
        "A new stored start moves no cursor",
        "Changing the stored start of a group moves none of its cursors.",
        "It corrects what a listing says, and must not repeat or skip work.",
    ),
    _safety(
        "G-GRP-7",
        "MLA",
        "A deleted group starts again",
        "The next pop of a deleted group creates it again, and the group starts where that pop says. A group that is "
        "deleted with `deleteMetadata=false` starts again where its stored start says.",
        "Cleaning up after an experiment must leave nothing that affects the next one.",
    ),
    _liveness(
        "G-WAIT-1",
        "LF",
        "Long polls are answered in time",
        "A long poll is answered soon after a message is available, and at its timeout at the latest.",
        "On an idle system, long polls decide the latency.",
    ),
    _safety(
        "G-WAIT-2",
        "ML",
        "Delayed messages",
        "No message is delivered before it is `delayedProcessing` seconds old by PostgreSQL's clock.",
        "A delay is relied on, for instance to let another system catch up.",
    ),
    _safety(
        "G-WAIT-3",
        "ML",
        "Window buffer",
        "A partition delivers nothing while its youngest message is younger than `windowBuffer` seconds by "
        "PostgreSQL's clock.",
        "A burst is to be processed as one batch.",
    ),
    _safety(
        "G-WAIT-4",
        "LF",
        "A client that has left takes nothing",
        "A long poll whose client has disconnected takes no message and leaves no lease.",
        "Otherwise each client that gives up hides messages for a whole lease.",
    ),
    _safety(
        "G-PAUSE-1",
        "ML",
        "What is paused delivers nothing",
        "While a queue is paused, or a group of it, that group gets no message: by no pop, no long poll and no "
        "WebSocket. That begins when the pause is answered, but for messages whose call PostgreSQL had begun before; "
        "the resumption ends it. Pushes and acks go on.",
        "Someone who stops consumers because of what they do wrong must be able to rely on it.",
    ),
    _safety(
        "G-RET-1",
        "MLA",
        "Nothing is removed too early",
        "Retention and eviction remove only what their settings allow: `retentionSeconds` with `retentionEnabled`, "
        "`completedRetentionSeconds` and `ttl` wherever they are set. No step of PostgreSQL's clock changes that "
        "(`G-TIME-1`).",
        "No retry brings back what was deleted.",
    ),
    _safety(
        "G-RET-2",
        "ML",
        "Retention waits for the slowest group",
        "`completedRetentionSeconds` never removes a message that some group of its queue has not completed.",
        "The slowest reader decides.",
    ),
    _safety(
        "G-RET-3",
        "ML",
        "A deleted queue is gone",
        "Deleting a queue removes its messages, groups, leases and dead letters. A push to the name creates a new "
        "queue.",
        "Clients delete a queue before they create it.",
    ),
    _liveness(
        "G-RET-4",
        "L",
        "Retention keeps up",
        "While the background jobs run, what retention may remove is gone one retention interval later, also a part of "
        "what was pushed together. What was "
        "stored before PostgreSQL's clock stepped forward is gone once it is old enough by measured time.",
        "A full disk is an outage.",
    ),
    _safety(
        "G-RET-5",
        "ML",
        "A deleted message is gone",
        "A deleted message is delivered to no group again, whenever the group was created and wherever a seek moves "
        "it. Its offset stays taken, and the messages around it keep theirs.",
        "What was deleted for a reason must not come back with a rewind.",
    ),
    _safety(
        "G-RET-6",
        "ML",
        "Eviction gives up what waited too long",
        "Eviction gives up, for each group, exactly the messages that have waited longer than `maxWaitTimeSeconds` "
        "and are under no live lease. Each leaves a dead letter, unless the queue keeps none.",
        "The original deletes them without a trace.",
    ),
    _safety(
        "G-RET-7",
        "ML",
        "Clean-up removes only what is empty and idle",
        "Clean-up removes a partition only if it is empty and idle. A push that arrives at the same moment is stored "
        "all the same.",
        "A producer may be about to push to it.",
    ),
    _safety(
        "G-RET-8",
        "ML",
        "maxSize holds",
        "No push leaves a queue with more than `maxSize` messages that some group has still to complete. A request "
        "that does not fit is refused as a whole, and makes no other request fail.",
        "Back-pressure that lets some messages through is none.",
    ),
    _safety(
        "G-TIME-1",
        "MF",
        "The clock steps forward",
        "Nothing is removed or given up for its age before that much time has passed as the servers measure it, "
        "however far PostgreSQL's clock steps forward, unless an operator accepts the step.",
        "A clock that is wrong for a minute must not delete what no retry brings back.",
    ),
    _liveness(
        "G-TIME-2",
        "MFA",
        "The clock steps back",
        "Soon after PostgreSQL's clock has stepped back, and while the background jobs run, no lease, retry or delay "
        "lasts longer than its queue or its request says, and no message of the log has a `createdAt` in the future.",
        "A lease of two seconds must not last an hour because a clock was an hour ahead.",
    ),
    _safety(
        "G-ISO-1",
        "LF",
        "Requests do not fail each other",
        "The bad data of one request, or the time that it takes, never makes another request fail. No request waits "
        "longer than 50 ms at a time for a lock that only another request needs.",
        "Requests of different clients share one procedure call.",
    ),
    _safety(
        "G-ISO-2",
        "ML",
        "Each item is judged by itself",
        "Every item of a request is judged by itself and has its own result, in the order of the request.",
        "Clients read the answer by position.",
    ),
    _safety(
        "G-ISO-3",
        "L",
        "Malformed requests",
        "A malformed request is answered with a 4xx that names the field, stores nothing, and stops no worker.",
        "The sender must learn what is wrong, and other clients must notice nothing.",
    ),
    _safety(
        "G-ISO-4",
        "L",
        "Refusals are answers",
        "A refused ack, an unknown lease, a failed transaction and a pop of an unknown queue are answered with a 2xx.",
        "The published consumers stop for good at a 4xx.",
    ),
    _safety(
        "G-COST-1",
        "L",
        "Cost is in proportion",
        "What a request costs PostgreSQL, in CPU and in blocks that it touches, grows no faster than what the request "
        "contains and gets, whatever else is stored.",
        "One request, or an ordinary shape of data, must not stop the queue for everybody.",
    ),
    _safety(
        "G-SEC-1",
        "ML",
        "Access levels",
        "No route answers a request without the access level that the route needs. `producerSub` comes from the token "
        "alone.",
        "What a client says about itself proves nothing.",
    ),
    _safety(
        "G-SEC-2",
        "ML",
        "Bad tokens are refused",
        "A token that is expired, not yet valid, signed with another key or algorithm, or not signed, is refused.",
        "Each of these has been a security hole in some server.",
    ),
    _safety(
        "G-SEC-3",
        "LF",
        "No encrypted payload in clear",
        "The payload of an encrypted queue appears nowhere in clear: not in a table, a spool file or a log.",
        "The database, its backups and the disk belong to others.",
    ),
    _safety(
        "G-SEC-4",
        "L",
        "No encryption without a key",
        "Without a key, the server refuses encryption instead of storing in clear.",
        "A silent fallback is found by the auditor.",
    ),
    _safety(
        "G-SEC-5",
        "ML",
        "Tampered payloads are not delivered",
        "An encrypted payload that was changed, moved to another place or stored under an unknown key is never "
        "delivered as data. The messages beside it are delivered.",
        "Access to the disk must not be enough to write messages.",
    ),
    _safety(
        "G-SPOOL-1",
        "MF",
        "Spooled pushes are on disk",
        "A push that is answered while PostgreSQL is unavailable is on disk and synchronised before the answer.",
        "The promise of an answered push does not depend on the state of PostgreSQL.",
    ),
    _safety(
        "G-SPOOL-2",
        "MLFA",
        "Replayed exactly once",
        "A spooled message is stored exactly once, however often the replay is killed or repeated.",
        "During recovery, a second crash is likely.",
    ),
    _safety(
        "G-SPOOL-3",
        "MF",
        "A crash at any byte",
        "After a crash at any byte, everything that was answered is replayed. A torn end is dropped only if it was "
        "never answered.",
        "The last write before a crash is the one that is incomplete.",
    ),
    _safety(
        "G-SPOOL-4",
        "MF",
        "A full spool refuses",
        "With a full disk or spool, a push is answered 503 with `Retry-After`, never as a success.",
        "A producer that knows can keep its message.",
    ),
    _safety(
        "G-SPOOL-5",
        "MF",
        "A refused record is set aside",
        "A record that PostgreSQL refuses for its data is set aside with the reason, and the records behind it are "
        "replayed.",
        "One bad record must neither vanish nor block.",
    ),
    _liveness(
        "G-SPOOL-6",
        "F",
        "The spool drains",
        "Once PostgreSQL answers again, the spool drains, and pushes go to PostgreSQL directly again, except to "
        "partitions that are held back.",
        "A spool that stays full is an unnoticed outage.",
    ),
    _safety(
        "G-SPOOL-7",
        "MF",
        "An outage keeps the order",
        "If one push to a partition is answered before another is sent, the other is stored behind it, whichever of "
        "them went through the spool.",
        "Neither the beginning nor the end of an outage may reverse the order of a partition.",
    ),
    _liveness(
        "G-SPOOL-8",
        "MF",
        "An outage is noticed in two seconds",
        "Within 2 seconds of the moment at which PostgreSQL refuses or resets connections, or just stops answering, "
        "pushes go to the spool.",
        "A connection that hangs may say nothing for minutes, and producers do not wait that long.",
    ),
    _safety(
        "G-SPOOL-9",
        "MF",
        "Held-back partitions",
        "A spooled request that cannot be stored yet, and that PostgreSQL does not refuse for its data, holds back "
        "only its own partitions, and the other partitions of requests that wait behind it. It is tried again until "
        "it is stored.",
        "It was answered, so it must not be lost; and it must not stop the others.",
    ),
    _safety(
        "G-OUT-1",
        "LFA",
        "A push with SQL commits with its transaction",
        "A message that `queen.push` has written is delivered if and only if the transaction of its caller commits, "
        "and is stored once, under every fault.",
        "A change of the application's tables and the message about it must not come apart.",
    ),
    _safety(
        "G-OUT-2",
        "LFA",
        "Order of pushes with SQL",
        "In a partition, messages that one transaction has pushed with SQL keep their order. A transaction that began "
        "after another had committed comes after it. A transaction that stays open holds back only its own messages.",
        "It is the order in which the application's tables have changed.",
    ),
    _safety(
        "G-SQL-1",
        "MLF",
        "A message that SQL pops is done with its transaction",
        "What `queen.pop` and `queen.ack` do takes effect if and only if the transaction of the caller commits, with "
        "its other changes, under every fault. After a rollback the messages are ready at once, as if never popped.",
        "It makes consumption exactly once for the application's own tables.",
    ),
    _safety(
        "G-SQL-2",
        "ML",
        "Leases, order and failures are those of HTTP",
        "Pops and acks with SQL keep the promises of those over HTTP, and each other's. A lease that a transaction has "
        "given lives until it ends, and its time begins with the commit. An ack that cannot be carried out, or of what "
        "is done, is an error.",
        "Consumers of both kinds share a group; and a repeated transaction must not do its work twice.",
    ),
    _safety(
        "G-SQL-3",
        "ML",
        "A transaction holds only what it has popped",
        "A transaction that has popped or acked with SQL makes no other request wait, except pops and acks of its own "
        "group in the partitions of its messages.",
        "It may stay open for as long as the application wants.",
    ),
    _safety(
        "G-OUT-3",
        "MLF",
        "Held-back pushes with SQL",
        "A message pushed with SQL that cannot go into the log yet, because its partition is locked or its queue is "
        "encrypted and the servers have no key, holds back only the later ones of its partition. It is tried again "
        "until it is moved.",
        "Its transaction has committed, so it must not be lost; and it must not stop the others.",
    ),
    _safety(
        "G-TIM-1",
        "MLFA",
        "A timer fires once, and not before its time",
        "A timer that was accepted enters the log once, under every fault, and not before its time by PostgreSQL's "
        "clock. A timer that was cancelled or replaced does not enter it.",
        "A reminder that comes twice, never, or too early is worse than none.",
    ),
    _safety(
        "G-TIM-2",
        "LF",
        "Order of timers",
        "Timers that were accepted before either of them was due enter the log in the order of their times; with the "
        "same time, in the order in which they were accepted. What cannot enter it now, because its partition is "
        "locked, or its queue is encrypted and the servers have no key, holds back only the later ones of its "
        "partition.",
        "What was to happen first happens first, also after an outage in which both became due.",
    ),
    _safety(
        "G-TIM-3",
        "MLA",
        "A cron schedule fires once per time",
        "At each time of its expression, in its time zone, a cron schedule puts one message into the log. Times that "
        "were missed because no server ran are made up for as its catch-up says.",
        "A daily job must not run twice because two servers run, nor a hundred times after a weekend without one.",
    ),
    _safety(
        "G-SMQ-1",
        "MLFA",
        "Visibility timeout",
        "A polled message is given to no other poller before its visibility timeout is over.",
        "During the timeout, the work belongs to one consumer.",
    ),
    _safety(
        "G-SMQ-2",
        "MLA",
        "Delivery count",
        "The delivery count in a poll's answer is 1 at the first delivery and one more at each next one. Outside "
        "dead-letter queues it is never above `maxDeliveries`.",
        "The count decides what becomes of the message.",
    ),
    _safety(
        "G-SMQ-3",
        "MLFA",
        "Exhausted messages become dead letters",
        "The first poll that finds a message visible again after its last delivery moves it to the queue's "
        "dead-letter queue, with its id, data, creation time and delivery count. The first such poll creates that "
        "queue.",
        "There is no background worker, and no dead-letter queue before there is a dead letter.",
    ),
    _safety(
        "G-SMQ-4",
        "MLFA",
        "The message count is exact",
        "The message count of a queue equals the number of its messages after every operation, whatever runs beside "
        "it.",
        "A wrong count closes a queue that is empty, or opens one that is full.",
    ),
    _safety(
        "G-SMQ-5",
        "MLA",
        "The size limit is exact",
        "Of any number of enqueues at once, a queue accepts exactly those that it has room for, and answers the "
        "others with 429.",
        "The limit is there for the moment when everybody pushes.",
    ),
    _safety(
        "G-SMQ-6",
        "LA",
        "Data comes back unchanged",
        "The data of a message comes back character for character.",
        "The queue transports data and does not interpret it.",
    ),
    _liveness(
        "G-SMQ-7",
        "MLFA",
        "At least once",
        "A message that was answered 201 is delivered until it is acked or in the dead-letter queue.",
        "This holds across crashes of the server and the database.",
    ),
    _safety(
        "G-SMQ-8",
        "MLFA",
        "An ack deletes",
        "An acked message is never seen again. Acking it again is answered 404.",
        "An ack is a delete.",
    ),
    _safety(
        "G-SMQ-9",
        "MLA",
        "A full dead-letter queue drops nothing",
        "A message for which the dead-letter queue has no room stays in its queue; it is counted and not delivered. A "
        "dead-letter queue has no dead-letter queue.",
        "Nothing is dropped to keep to a limit.",
    ),
    _safety(
        "G-SMQ-10",
        "ML",
        "Requeue",
        "A requeued message is visible at once, with delivery count 0, in a queue that had room. Its data and "
        "creation time are kept. A requeue from a dead-letter queue that is sent again changes nothing.",
        "Requeueing is the second chance after the fault is fixed.",
    ),
    _safety(
        "G-SMQ-11",
        "ML",
        "Peek",
        "A peek changes nothing. Its pages show every message that stays, once each, oldest first.",
        "Looking must be safe.",
    ),
    _safety(
        "G-SMQ-12",
        "ML",
        "Message groups are in order",
        "The messages of a group are delivered one at a time, in the order of their enqueues. The next one comes only "
        "when the one before it is acked or has had all its deliveries.",
        "Some work has an order, and the rest must not wait for it.",
    ),
    _liveness(
        "G-SMQ-13",
        "L",
        "Waiting polls are answered in time",
        "A poll that waits is answered soon after a message is visible, and at the end of its time at the latest.",
        "A consumer of a quiet queue neither asks all the time nor finds messages late.",
    ),
    _safety(
        "G-SMQ-14",
        "ML",
        "Extending the timeout",
        "An extension moves the end of a message's visibility timeout only while the message is in flight.",
        "A late heartbeat must not hide what another consumer is about to get.",
    ),
    _safety(
        "G-SMQ-15",
        "ML",
        "All or none per enqueue",
        "An enqueue stores all of its messages or none.",
        "Half a batch is the worst of all answers.",
    ),
    _liveness(
        "G-SMQ-16",
        "ML",
        "Sweep",
        "With the sweep switched on, exhausted messages reach the dead-letter queue without polls.",
        "If the consumers of a queue have died, operators should still see its dead letters.",
    ),
    _safety(
        "G-SMQ-17",
        "L",
        "A client that has left takes nothing",
        "A waiting poll whose client has disconnected takes no message and counts no delivery.",
        "Otherwise each client that gives up wastes a delivery and hides a message.",
    ),
    _liveness(
        "G-SQS-1",
        "MLA",
        "Received until it is deleted",
        "A message that was sent to a queue of SQS is received again and again until it is deleted, purged, older than "
        "the retention, or in another queue as a dead letter or by a move task.",
        "A consumer that dies loses nothing.",
    ),
    _safety(
        "G-SQS-2",
        "MLA",
        "Hidden while in flight",
        "A received message is given to no other receive before its visibility timeout is over, which the receive or a "
        "later change has set.",
        "During the timeout, the work belongs to one consumer. SQS promises this for FIFO queues only.",
    ),
    _safety(
        "G-SQS-3",
        "MLA",
        "Order within a message group",
        "Receives from a FIFO queue return the messages of a group in the order in which they were sent. While one of "
        "them is in flight, no other receive gets messages of the group. What is visible again comes before what was "
        "sent later.",
        "The group is the unit of order.",
    ),
    _safety(
        "G-SQS-4",
        "MLA",
        "Stored once within five minutes",
        "A FIFO queue stores one message for a deduplication id within five minutes of the first sending, in the queue "
        "or if it says so in the group. A duplicate is answered with the first message's id and sequence number.",
        "A producer may repeat what had no answer.",
    ),
    _safety(
        "G-SQS-5",
        "MLA",
        "A receive can be repeated",
        "A receive from a FIFO queue with the attempt id of an earlier one returns the same messages with the same "
        "receive counts, within five minutes and as long as they are in flight and none was deleted or changed.",
        "A consumer whose connection broke need not wait for the timeout.",
    ),
    _safety(
        "G-SQS-6",
        "ML",
        "An old handle deletes nothing",
        "A receipt handle deletes or hides a message only if the message was not received again since. In a FIFO queue "
        "also its visibility timeout must not be over.",
        "A consumer that was too slow must not take a message from the one that has it now.",
    ),
    _safety(
        "G-SQS-7",
        "MLA",
        "Dead letters after the last receive",
        "With a redrive policy, a message whose visibility timeout ends after `maxReceiveCount` receives is in the "
        "dead-letter queue next, with its id and sending time. If that queue does not exist, it stays.",
        "What fails again and again must not block or be lost.",
    ),
    _safety(
        "G-SQS-8",
        "ML",
        "Delay",
        "A message is not received before its delay is over, and then without another event.",
        "Producers use it for retries and for work that is not due.",
    ),
    _safety(
        "G-SQS-9",
        "MF",
        "Retention",
        "A message is removed when it is older than the retention of its queue, and not before, counted from its first "
        "sending.",
        "Messages that are never received must not fill the disk; those that will be received must be there.",
    ),
    _safety(
        "G-SQS-10",
        "ML",
        "A move task moves each message once",
        "A message move task puts each message that was visible in its source into its destination once, as a new "
        "message, and none that arrives in the source later.",
        "A redrive must end, also if the messages fail again.",
    ),
    _safety(
        "G-SQS-11",
        "ML",
        "Exact figures",
        "The figures of a queue of SQS are the numbers of its messages that are visible, in flight and delayed, as "
        "long as no more than a thousand of them change by time between two receives or sweeps.",
        "Autoscaling and alarms follow the figures. SQS promises approximate ones.",
    ),
    _safety(
        "G-SQS-12",
        "ML",
        "A receipt handle cannot be forged",
        "A receipt handle that the server has not made for the queue of the request is refused, and so is one of which "
        "any character was changed.",
        "Who may use one queue must not delete messages of another, or messages that were never received.",
    ),
    _safety(
        "G-SQS-13",
        "ML",
        "A request is whose key has signed it",
        "With access keys, an action of SQS is carried out only if a known key has its level and has signed method, "
        "path, query, host, target and body in the last five minutes, or for the time of a presigned URL; or if a "
        "token has the level.",
        "Otherwise everybody who reaches the server could read and delete messages.",
    ),
    _safety(
        "G-SQS-14",
        "MF",
        "Sends outlast an outage",
        "A send that is answered while PostgreSQL is unavailable is on disk. Its messages are stored once, in each "
        "queue in the order of the answers, with the id, sending time and delay that they were sent with. Whether one "
        "is a duplicate depends on when it was sent. Sends to a queue that was deleted are set aside.",
        "Producers go on, and consumers see neither gaps nor repetitions.",
    ),
    _safety(
        "G-SHARD-1",
        "MLFA",
        "A partition is in one database",
        "With several databases, all messages of a partition are in one of them, whichever server and whichever list "
        "of the databases they came by. A change of the list moves none.",
        "Order, deduplication and leases of a partition are those of its database.",
    ),
    _safety(
        "G-SHARD-2",
        "ML",
        "All or none in each database",
        "The messages of one push that belong to one database are stored all or none. If a part of the push was "
        "refused or has an unknown outcome, the answer is an error, and the same push with the same transaction ids "
        "stores what is missing.",
        "No transaction spans databases, so a producer must be able to repeat.",
    ),
    _safety(
        "G-SHARD-3",
        "LF",
        "A database that is unavailable stops only its own partitions",
        "While a database is unavailable, pushes and pops of the partitions of the others go on, and pushes to its own "
        "are spooled.",
        "It is why there are several.",
    ),
    _safety(
        "G-SHARD-4",
        "ML",
        "What spans databases is refused as a whole",
        "A transaction, or a cycle of a stream, that concerns partitions in several databases is refused and changes "
        "nothing in any of them.",
        "It is atomic or it is not carried out.",
    ),
    _safety(
        "G-SHARD-5",
        "LF",
        "Spooled pushes follow the list",
        "A push that was spooled for one database is stored in order and once in the database to which its partition "
        "belongs when the spool is replayed.",
        "The list of databases may change while a spool waits.",
    ),
    _safety(
        "G-SHARD-6",
        "MLF",
        "A group begins in all databases",
        "A consumer group begins in the same place in all databases. One that is unavailable at that time gets the "
        "group when it is back, and the group misses nothing of it that was stored after its beginning.",
        "A group is one thing to its consumers, wherever the messages are.",
    ),
    _safety(
        "G-SHARD-7",
        "L",
        "SQL pushes into its own database",
        "`queen.push` stores a message in the database in which it is called, in a partition that is there.",
        "It commits with the transaction of its caller, which is there.",
    ),
    _safety(
        "G-SHARD-8",
        "MLF",
        "A partition that moves stays what it is",
        "A partition that is moved to another database keeps its number, its messages with their ids and order, the "
        "transaction ids that pushes are compared with, the positions, failures and leases of its groups, its dead "
        "letters, timers and states of streams. Nothing is lost, delivered twice or reordered because of the move, "
        "also if it is interrupted at any moment and repeated. At every moment one database at most serves it.",
        "Databases are added and given up while servers run.",
    ),
    _safety(
        "G-SHARD-9",
        "ML",
        "A queue of simple-mq or SQS is in one database",
        "With several databases, all messages of a queue of simple-mq or SQS are in one of them, and its dead letters "
        "are there, too; so are all queues of SQS whose names are equal up to `--`. A change of the list moves none. "
        "Dead letters or messages are not sent to a queue in another database: that is refused.",
        "Order, visibility and the move to the dead-letter queue are those of its database.",
    ),
)

GUARANTEES: Mapping[str, Guarantee] = MappingProxyType({guarantee.id: guarantee for guarantee in _CATALOGUE})
