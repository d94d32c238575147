"""The subscription of a client: its pops, credit and windows, validated."""

import msgspec
from msgspec import Struct

from queen.core import limits
from queen.core.errors import BadRequestError
from queen.http.parsing import check_group, parse_integer
from queen.http.pops import place_of, start_of
from queen.http.socket.frames import Subscribe, Subscribed, WindowBody
from queen.log.requests import QUEUE_MODE, Pop
from queen.log.window import Window

DEFAULT_CREDIT = 100
#: Timeout of a long poll before the next one is sent.
WAIT_MS = 30_000


class Subscription(Struct, frozen=True):
    """A requested delivery.

    Attributes:
        pop: the pop for one batch of maximum size.
        credit: maximum of messages in flight.
        window: how to cut windows, or ``None`` for batches.
    """

    pop: Pop
    credit: int
    window: Window | None

    def pop_of(self, batch: int) -> Pop:
        """A pop of at most this many messages."""
        return msgspec.structs.replace(self.pop, batch=min(batch, self.pop.batch))


def subscription_of(frame: Subscribe, credit_max: int, default_mode: str) -> Subscription:
    """Validates a subscription.

    Raises:
        BadRequestError: a field is missing or invalid; names the field.
    """
    credit = parse_integer(frame.credit, "credit", DEFAULT_CREDIT, 0, credit_max)
    # A credit of 0 at the start does not limit the batch: the client will raise it.
    most = min(credit or credit_max, limits.BATCH_MESSAGES_MAX)
    window = _window(frame.window, most)
    pop = Pop(
        **place_of(frame.queue, frame.partition, frame.namespace, frame.task),
        **start_of(frame.subscriptionMode, frame.subscriptionFrom, default_mode),
        group=check_group(frame.consumerGroup, "consumerGroup", QUEUE_MODE),
        batch=parse_integer(
            frame.batch, "batch", min(limits.AUTOPILOT_BATCH_MESSAGES, most), 1, limits.BATCH_MESSAGES_MAX
        ),
        partitions=parse_integer(
            frame.partitions, "partitions", limits.AUTOPILOT_PARTITIONS, 1, limits.POP_PARTITIONS_MAX
        ),
        lease_seconds=parse_integer(frame.leaseSeconds, "leaseSeconds", 0, 1, limits.LEASE_SECONDS_MAX) or None,
        wait_ms=WAIT_MS,
    )
    return Subscription(pop, credit, window)


def subscribed(frame: Subscribe, subscription: Subscription) -> Subscribed:
    """The answer to a subscription."""
    pop, window = subscription.pop, subscription.window
    shown = WindowBody(window.messages, window.seconds) if window else None
    return Subscribed(frame.ref, pop.group, subscription.credit, pop.batch, pop.partitions, shown)


def _window(body: WindowBody | None, most: int) -> Window | None:
    if body is None:
        return None
    if body.messages is None and body.seconds is None:
        raise BadRequestError("window needs messages, seconds, or both", "window")
    seconds = parse_integer(body.seconds, "window.seconds", 0, 1, limits.LEASE_SECONDS_MAX) or None
    return Window(parse_integer(body.messages, "window.messages", most, 1, most), seconds)
