"""What the log of administrative changes says of dead letters, so that ``queen audit`` knows each of them."""

from queen.core.administration import DeadLetter
from queen.engine.handlers.dead_letters import Note, Replayed, transaction_id_of
from queen.http.request import QueenRequest
from queen.log import ids


def letter_of(letter: DeadLetter) -> dict[str, object]:
    """The fields of a line about a dead letter: whose message it is, and of which group."""
    return {
        "dead_letter": {
            "partitionId": ids.partition_id(letter.part_id),
            "transactionId": letter.transaction_id,
            "consumerGroup": letter.consumer_group,
        }
    }


def noting(req: QueenRequest) -> Note:
    """Notes each dead letter that is replayed, and the message that it has become."""

    def note(letter: DeadLetter, replayed: Replayed | None) -> None:
        if replayed is None:
            req.about.append(letter_of(letter))
        else:
            req.about[-1] |= _replayed_as(replayed)

    return note


def _replayed_as(replayed: Replayed) -> dict[str, object]:
    put_back = replayed.put_back
    return {
        "replayed_as": {
            "queue": replayed.queue,
            "partition": replayed.partition,
            "transactionId": transaction_id_of(replayed.letter),
            "messageId": ids.message_id(put_back.part_id, put_back.offset),
            "duplicate": not put_back.moved,
        }
    }
