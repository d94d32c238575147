"""Push, pop, ack, leases, transactions and the WebSocket."""

from queen.core import limits
from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import NAME, PARTITION_PATH, QUEUE_PATH, SWITCH, path
from queen.http.contract.shapes import AckPopAnswer, PopAnswer, PushedItem
from queen.http.fields import MODE, START, number_of, text_of
from queen.http.parsing import PushBody
from queen.http.rendering import AckAnswer, LeaseAnswer, TransactionAnswer
from queen.http.resources.ack import AckBatchBody, AckBody
from queen.http.resources.leases import ExtendBody
from queen.http.resources.transactions import OperationBody, TransactionBody

_POP_PARAMETERS = (
    Parameter(
        "consumerGroup",
        "Group that takes the messages; without one, queue mode",
        text_of(0, limits.GROUP_CHARS_MAX),
    ),
    Parameter(
        "batch",
        "Most messages of the answer; by default `DEFAULT_BATCH_SIZE` (1), with `autopilot` 200",
        number_of(1, limits.BATCH_MESSAGES_MAX),
    ),
    Parameter(
        "partitions",
        f"Most partitions that are claimed, where none is named; 0 and less mean {limits.POP_PARTITIONS_MAX}. By "
        f"default 1, with `autopilot` {limits.AUTOPILOT_PARTITIONS}",
        number_of(-(10**9), 10**9),
    ),
    Parameter("wait", "`true` or `1`: wait for a message if there is none", SWITCH),
    Parameter(
        "timeout",
        "How long to wait, in milliseconds; by default `DEFAULT_TIMEOUT` (30000)",
        number_of(0, limits.TIMEOUT_MS_MAX),
    ),
    Parameter("autoAck", "`true` or `1`: the messages are done with their delivery, without a lease", SWITCH),
    Parameter(
        "subscriptionMode",
        "Where a group starts that comes for the first time: at the oldest message (`all`) or after the newest (`new`)",
        MODE,
    ),
    Parameter(
        "subscriptionFrom",
        "The same by time: strictly after it; `now` means `new`. Wins over the mode",
        START,
    ),
    Parameter(
        "leaseSeconds",
        "Duration of the lease; by default the queue's `leaseTime`",
        number_of(1, limits.LEASE_SECONDS_MAX),
    ),
    Parameter("conflation", "`true` or `1` is refused: this server delivers every message", SWITCH),
    Parameter("autopilot", "`true` or `1`: the server chooses batch and partitions where they are not sent", SWITCH),
)
_POP_ANSWERS = (
    Answer("Messages, under a lease until they are acked or it ends", PopAnswer),
    Answer("There are none, also after waiting", status=204),
)
_POP_ERRORS = (400, 501, 503)
_WILDCARD = "/api/v1/pop/queue/{place:path}"

TOPIC = Topic(
    "Messages on their way",
    "Producers push, consumers pop, and say with an ack what became of it. What each operation means in all cases is "
    "in `docs/semantics.md`.",
    [
        Operation(
            "POST",
            "/api/v1/push",
            "push",
            "Append messages",
            [Answer("One element an item, in their order; an empty list for no items", list[PushedItem], 201)],
            (400, 413, 422, 429, 503),
            "All items are stored, or none. Queues and partitions come into being with their first message. An item "
            "whose `transactionId` is stored in its partition already is a duplicate and is not stored again.",
            body=PushBody,
        ),
        Operation(
            "GET",
            "/api/v1/pop/queue/{queue}",
            "popQueue",
            "Take messages of any partition of a queue",
            _POP_ANSWERS,
            _POP_ERRORS,
            "Partitions that another consumer of the group holds are passed over. An unknown queue has no messages; a "
            "named group's pop makes it.",
            (QUEUE_PATH, *_POP_PARAMETERS),
            route=_WILDCARD,
        ),
        Operation(
            "GET",
            "/api/v1/pop/queue/{queue}/partition/{partition}",
            "popPartition",
            "Take messages of one partition",
            _POP_ANSWERS,
            _POP_ERRORS,
            parameters=(QUEUE_PATH, PARTITION_PATH, *_POP_PARAMETERS),
            route=_WILDCARD,
        ),
        Operation(
            "GET",
            "/api/v1/pop",
            "popLabel",
            "Take messages of any queue of a namespace or task",
            _POP_ANSWERS,
            _POP_ERRORS,
            "At least one of the two is required; a queue must match both.",
            (
                Parameter("namespace", "Queues of this namespace", NAME),
                Parameter("task", "Queues of this task", NAME),
                *_POP_PARAMETERS,
            ),
        ),
        Operation(
            "POST",
            "/api/v1/ack",
            "ack",
            "Say what became of one message",
            [Answer("A list of one result", list[AckAnswer])],
            (400, 413, 503),
            "`completed` (`success`): done. `failed`: deliver it again, after the queue's `retryLimit` put it among "
            "the dead letters. `retry`: deliver it again and count nothing. `dlq`: among the dead letters at once. "
            "An ack that is refused is an answer with `success` false.",
            body=AckBody,
        ),
        Operation(
            "POST",
            "/api/v1/ack/batch",
            "ackBatch",
            "Say what became of many messages",
            [
                Answer(
                    "One result an acknowledgment, in their order; with `pop` an object of these and the messages",
                    list[AckAnswer] | AckPopAnswer,
                )
            ],
            (400, 413, 501, 503),
            "Each stands for itself: a refused one does not hold up the others. With `pop` the next messages come in "
            "the same answer; the acks are carried out whatever becomes of the pop.",
            body=AckBatchBody,
        ),
        Operation(
            "POST",
            "/api/v1/lease/{leaseId}/extend",
            "extendLease",
            "Keep a lease longer",
            [Answer("When it ends now; `success` false if it is unknown or over", LeaseAnswer)],
            (400, 503),
            "Without a body the lease lasts 60 seconds from now.",
            (path("leaseId", "Lease of a pop", {"type": "string", "minLength": 1}),),
            ExtendBody,
            needs_body=False,
            route="/api/v1/lease/{lease}/extend",
        ),
        Operation(
            "POST",
            "/api/v1/transaction",
            "transact",
            "Push and ack, all or nothing",
            [Answer("`success`, and then a result for each ack and each pushed item", TransactionAnswer)],
            (400, 413, 422, 429, 503),
            "A transaction that fails is an answer with `success` false, and nothing of it has happened. An array of "
            "operations is taken for an object with nothing but `operations`.",
            body=TransactionBody | list[OperationBody],
        ),
        Operation(
            "GET",
            "/api/v1/subscribe",
            "subscribe",
            "Consume over a WebSocket",
            [Answer("The protocol is `queen.v1` from here on", status=101)],
            (426, 503),
            "Messages come by themselves, never more than the consumer wants, and are acked on the same socket; "
            "also in windows by number or time. The frames are described in `docs/websocket.md`.",
            websocket=True,
        ),
    ],
)
