"""Changes the starting point of a consumer group: ``POST /api/v1/consumer-groups/{consumerGroup}/subscription``."""

from functools import partial

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.engine.handlers.consumer_groups import update_subscriptions
from queen.http import parameters
from queen.http.access import READ_WRITE
from queen.http.answers import answer, text
from queen.http.fields import Time
from queen.http.operation import Answer, operation
from queen.http.parsing import decode, parse_time
from queen.http.request import QueenRequest, read_body
from queen.operations.consumer_groups import check_group
from queen.operations.server import Server

_BODY_BYTES_MAX = 64 * 1024


class SubscriptionBody(Struct, rename="camel"):
    """The new starting point of a group.

    Attributes:
        subscription_timestamp: in partitions without a cursor the group gets messages pushed after it.
    """

    subscription_timestamp: Time


class SubscriptionAnswer(Struct, rename="camel"):
    """The number of queues on which the starting point of a group was changed."""

    success: bool
    consumer_group: str
    new_timestamp: str
    rows_updated: int


_decoder = msgspec.json.Decoder(SubscriptionBody)
_TEXTS = {"subscriptionTimestamp": "Missing subscriptionTimestamp in request body"}


@operation(
    "POST",
    "/api/v1/consumer-groups/{consumerGroup}/subscription",
    "updateSubscription",
    "Change the starting point of a group",
    access=READ_WRITE,
    answers=[Answer("The number of queues", SubscriptionAnswer)],
    errors=(400, 413, 503),
    description="It applies to partitions in which the group has no cursor yet.",
    parameters=[parameters.GROUP_PATH],
    body=SubscriptionBody,
    audited=True,
)
async def update_subscription(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str
) -> None:
    """Changes it on all queues on which the group is known."""
    group = check_group(consumer_group)
    body = decode(_decoder, await read_body(req, _BODY_BYTES_MAX), _TEXTS)
    since = parse_time(body.subscription_timestamp, "subscriptionTimestamp")
    queues = await server.run(partial(update_subscriptions, group=group, since=since))
    answer(resp, SubscriptionAnswer(True, group, text(since), queues))
