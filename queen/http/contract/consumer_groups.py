"""Consumer groups, and the statistics about them."""

from queen.core.administration import GroupOrder
from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import (
    GROUP_PATH,
    PARTITION_PATH,
    QUEUE_PATH,
    QUEUES,
    SEARCH,
    limit,
    order,
    page,
)
from queen.http.fields import number_of
from queen.http.queries import LIMIT
from queen.http.resources.consumer_groups import (
    LAG_SECONDS_MAX,
    GroupDeletedAnswer,
    GroupElement,
    GroupOfQueue,
    LaggingElement,
    PartitionSeekAnswer,
    RefreshAnswer,
    SeekAnswer,
    SeekBody,
    SubscriptionAnswer,
    SubscriptionBody,
)

_ROUTE = "/api/v1/consumer-groups/{place:path}"
_DELETE_METADATA = Parameter(
    "deleteMetadata",
    "Whether the group is forgotten (default), or begins anew where it began",
    {"type": "string", "enum": ["true", "false", "1", "0"]},
)

TOPIC = Topic(
    "Consumer groups",
    "A group has a cursor in each partition. Groups do not touch each other.",
    [
        Operation(
            "GET",
            "/api/v1/consumer-groups",
            "listConsumerGroups",
            "List consumer groups",
            [Answer("A page: one element a group and queue, by default by queue and name", list[GroupElement])],
            (400, 503),
            parameters=(QUEUES, SEARCH, order(GroupOrder, GroupOrder.NAME), *page(LIMIT)),
        ),
        Operation(
            "GET",
            "/api/v1/consumer-groups/lagging",
            "listLaggingPartitions",
            "Partitions that a group is behind in",
            [Answer("Worst first", list[LaggingElement])],
            (400, 503),
            parameters=(
                Parameter(
                    "minLagSeconds",
                    "Only where the oldest undone message is at least so old; 3600 by default",
                    number_of(0, LAG_SECONDS_MAX),
                ),
                limit(1000, 1000),
            ),
        ),
        Operation(
            "GET",
            "/api/v1/consumer-groups/{consumerGroup}",
            "getConsumerGroup",
            "The cursors of a group",
            [Answer("By queue; nothing for a group that nobody knows", dict[str, GroupOfQueue])],
            (400, 503),
            parameters=(GROUP_PATH, *page(1000)),
            route=_ROUTE,
        ),
        Operation(
            "DELETE",
            "/api/v1/consumer-groups/{consumerGroup}",
            "deleteConsumerGroup",
            "Delete a group on all queues",
            [Answer("An unknown group is an answer too", GroupDeletedAnswer)],
            (400, 503),
            parameters=(GROUP_PATH, _DELETE_METADATA),
            route=_ROUTE,
        ),
        Operation(
            "DELETE",
            "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}",
            "deleteConsumerGroupOfQueue",
            "Delete a group on one queue",
            [Answer("An unknown group is an answer too", GroupDeletedAnswer)],
            (400, 503),
            parameters=(GROUP_PATH, QUEUE_PATH, _DELETE_METADATA),
            route=_ROUTE,
        ),
        Operation(
            "POST",
            "/api/v1/consumer-groups/{consumerGroup}/subscription",
            "updateSubscription",
            "Change where a group starts",
            [Answer("On how many queues", SubscriptionAnswer)],
            (400, 413, 503),
            "It counts for partitions in which the group has no cursor yet.",
            (GROUP_PATH,),
            SubscriptionBody,
            route=_ROUTE,
        ),
        Operation(
            "POST",
            "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/seek",
            "seekConsumerGroup",
            "Put all cursors of a group on a queue",
            [Answer("How many", SeekAnswer)],
            (400, 413, 503),
            "To the end, to the beginning, or to the first message after a time.",
            (GROUP_PATH, QUEUE_PATH),
            SeekBody,
            route=_ROUTE,
        ),
        Operation(
            "POST",
            "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/partitions/{partition}/seek",
            "seekPartition",
            "Put the cursor of a group in one partition",
            [Answer("Whether it was moved", PartitionSeekAnswer)],
            (400, 404, 503),
            "Without a body, or with an empty one, to the end.",
            (GROUP_PATH, QUEUE_PATH, PARTITION_PATH),
            SeekBody,
            needs_body=False,
            route=_ROUTE,
        ),
        Operation(
            "POST",
            "/api/v1/stats/refresh",
            "refreshStatistics",
            "Compute all figures anew",
            [Answer("How many", RefreshAnswer)],
            (503,),
        ),
    ],
)
