"""What the client's streams commit and read."""

from queen.http.contract.operation import Answer, Operation, Topic
from queen.http.resources.streams import (
    CycleAnswer,
    CycleBody,
    QueryAnswer,
    QueryBody,
    QueryConflict,
    StateAnswer,
    StateBody,
)

TOPIC = Topic(
    "Streams",
    "A stream reads a queue, keeps a state, and writes to another queue. A cycle commits all three together, once.",
    [
        Operation(
            "POST",
            "/streams/v1/queries",
            "registerStream",
            "Register a stream query",
            [
                Answer("It is there, new (`fresh`) or as before", QueryAnswer),
                Answer(
                    "It is there with another chain of operators, and `reset` was not asked for", QueryConflict, 409
                ),
            ],
            (400, 413, 503),
            body=QueryBody,
        ),
        Operation(
            "POST",
            "/streams/v1/cycle",
            "commitCycle",
            "Commit a cycle: state, outputs and the ack of the input",
            [Answer("`success`; of a cycle that failed nothing has happened", CycleAnswer)],
            (400, 413, 422, 429, 503),
            body=CycleBody,
        ),
        Operation(
            "POST",
            "/streams/v1/state/get",
            "readStreamState",
            "Read the state of a stream in one partition",
            [Answer("Rows in the order of their keys; `success` false for an unknown query", StateAnswer)],
            (400, 413, 503),
            "Without `keys` and `key_prefix` all rows; `ripe_at_or_before` leaves windows that have ended by then.",
            body=StateBody,
        ),
    ],
)
