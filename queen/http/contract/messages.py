"""Single messages, dead letters and traces."""

from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import (
    FROM,
    GROUP,
    NAME,
    OFFSET,
    PARTITION,
    PARTITION_ID,
    QUEUE,
    TASK,
    TIME,
    TO,
    TRANSACTION_ID,
    limit,
    offset,
    page,
    path,
)
from queen.http.queries import LIMIT
from queen.http.resources.dead_letters import DeadLetterList, DeletedDeadLetter, PurgedAnswer, ReplayAnswer, ReplayBody
from queen.http.resources.messages import STATUSES, DeletedAnswer, GivenUpAnswer, GiveUpBody, MessageAnswer, MessageList
from queen.http.resources.traces import MessageTraces, NamedTraces, RecordedAnswer, TraceBody, TraceNames

_MESSAGE = "/api/v1/messages/{place:path}"
_PATH = (PARTITION_ID, TRANSACTION_ID)
_LARGE = "A page ends sooner where more than 16 MiB would stand in it; the next begins behind what came."
_DEAD_LETTER = path("deadLetterId", "Id of the dead letter", {"type": "string", "format": "uuid"})

MESSAGES = Topic(
    "Single messages",
    "For people who look into a queue. A message is named by its partition id and its transaction id.",
    [
        Operation(
            "GET",
            "/api/v1/messages",
            "listMessages",
            "List messages",
            [Answer("A page, newest first; `total` is its length", MessageList)],
            (400, 503),
            "A list by `status` looks at the newest 10,000 that match the rest.",
            (
                QUEUE,
                PARTITION,
                Parameter("ns", "Only queues of this namespace", NAME),
                Parameter("namespace", "The same under its other name", NAME),
                TASK,
                Parameter("status", "Only messages with this status", {"type": "string", "enum": list(STATUSES)}),
                FROM,
                TO,
                limit(200),
                offset(10_000),
            ),
        ),
        Operation(
            "GET",
            "/api/v1/messages/{partitionId}/{transactionId}",
            "getMessage",
            "Everything that is known of a message",
            [Answer("With the groups of its queue and how they stand to it", MessageAnswer)],
            (400, 404, 503),
            parameters=_PATH,
            route=_MESSAGE,
        ),
        Operation(
            "DELETE",
            "/api/v1/messages/{partitionId}/{transactionId}",
            "deleteMessage",
            "Delete a message for all groups",
            [Answer("It is gone, with its dead letters and traces", DeletedAnswer)],
            (400, 404, 503),
            parameters=_PATH,
            route=_MESSAGE,
        ),
        Operation(
            "POST",
            "/api/v1/messages/{partitionId}/{transactionId}/retry",
            "retryMessage",
            "Replay the newest dead letter of a message",
            [Answer("Where it stands now", ReplayAnswer)],
            (400, 404, 422, 429, 503),
            parameters=_PATH,
            route=_MESSAGE,
        ),
        Operation(
            "POST",
            "/api/v1/messages/{partitionId}/{transactionId}/dlq",
            "giveUpMessage",
            "Move a message to the dead letters",
            [Answer("For which groups it was given up", GivenUpAnswer)],
            (400, 404, 409, 503),
            "For the named group, or for all that have not completed it.",
            parameters=_PATH,
            body=GiveUpBody,
            needs_body=False,
            route=_MESSAGE,
        ),
    ],
)

DEAD_LETTERS = Topic(
    "Dead letters",
    "Messages that a group has given up, each with the error.",
    [
        Operation(
            "GET",
            "/api/v1/dlq",
            "listDeadLetters",
            "List dead letters",
            [Answer("A page, newest failure first; `total` counts those that match", DeadLetterList)],
            (400, 503),
            _LARGE + " A list looks at the newest 100,000 of the queue, or of all queues.",
            (
                QUEUE,
                PARTITION,
                GROUP,
                Parameter("from", "Only failures since", TIME),
                Parameter("to", "Only failures until", TIME),
                *page(100),
            ),
        ),
        Operation(
            "DELETE",
            "/api/v1/dlq",
            "purgeDeadLetters",
            "Delete the dead letters of a queue",
            [Answer("How many", PurgedAnswer)],
            (400, 503),
            "In transactions of up to 5,000, newest failure first. What fails meanwhile stays; so does the rest if the "
            "request is cut off.",
            (
                Parameter("queue", "Whose dead letters", NAME, required=True),
                GROUP,
            ),
        ),
        Operation(
            "DELETE",
            "/api/v1/dlq/{deadLetterId}",
            "deleteDeadLetter",
            "Delete one dead letter",
            [Answer("It is gone; its message stays done", DeletedDeadLetter)],
            (404, 503),
            parameters=(_DEAD_LETTER,),
            route="/api/v1/dlq/{dead_letter}",
        ),
        Operation(
            "POST",
            "/api/v1/dlq/{deadLetterId}/replay",
            "replayDeadLetter",
            "Put a dead letter back into a queue",
            [Answer("Where it stands now", ReplayAnswer)],
            (400, 404, 422, 429, 503),
            "It goes to the tail of the partition it came from, or to the one of the body.",
            (_DEAD_LETTER,),
            ReplayBody,
            needs_body=False,
            route="/api/v1/dlq/{dead_letter}/replay",
        ),
    ],
)

TRACES = Topic(
    "Traces",
    "What consumers record about messages on their way.",
    [
        Operation(
            "POST",
            "/api/v1/traces",
            "recordTrace",
            "Record a trace of a message",
            [Answer("It is stored", RecordedAnswer, 201)],
            (400, 404, 413, 422, 503),
            body=TraceBody,
        ),
        Operation(
            "GET",
            "/api/v1/traces/names",
            "listTraceNames",
            "List names of traces",
            [Answer("A page, latest first", TraceNames)],
            (400, 503),
            "Those of the newest 100,000 traces; the traces of a name are counted up to 10,000.",
            (limit(50, LIMIT), OFFSET),
        ),
        Operation(
            "GET",
            "/api/v1/traces/by-name/{traceName}",
            "listTracesByName",
            "Traces of one name, over all messages",
            [Answer("A page, oldest first; `total` counts up to 100,000", NamedTraces)],
            (400, 503),
            _LARGE,
            (path("traceName", "Name of the traces"), *page(100)),
            route="/api/v1/traces/by-name/{place:path}",
        ),
        Operation(
            "GET",
            "/api/v1/traces/{partitionId}/{transactionId}",
            "listTracesOfMessage",
            "Traces of one message",
            [Answer("A page, oldest first; an unknown message has none", MessageTraces)],
            (400, 503),
            parameters=(*_PATH, *page(LIMIT)),
            route="/api/v1/traces/{place:path}",
        ),
    ],
)
