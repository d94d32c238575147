"""Configuring, listing and deleting queues."""

from queen.core.administration import QueueOrder
from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import (
    NAME,
    NAMESPACE,
    PARTITION,
    QUEUE,
    QUEUE_PATH,
    QUEUES,
    SEARCH,
    TASK,
    order,
    page,
)
from queen.http.contract.shapes import ConfigurationAnswer, ConfiguredAnswer, QueueDeletedAnswer
from queen.http.queries import LIMIT
from queen.http.resources.catalogue import (
    PARTITIONS_LIMIT,
    DepthAnswer,
    NamespaceList,
    OverviewAnswer,
    PartitionList,
    QueueAnswer,
    QueueList,
    TaskList,
)
from queen.http.resources.queues import ConfigureBody

_QUEUE = "/api/v1/resources/queues/{queue:path}"

TOPIC = Topic(
    "Queues",
    "Queues and what is in them. Figures are as old as `statsAge` says: seconds, -1 for never; those of small queues "
    "are always new.",
    [
        Operation(
            "POST",
            "/api/v1/configure",
            "configureQueue",
            "Make a queue, or replace its options",
            [Answer("What holds now", ConfiguredAnswer)],
            (400, 413, 503),
            "An option that is not sent goes back to its default. `namespace` and `task` may stand among the options.",
            body=ConfigureBody,
        ),
        Operation(
            "GET",
            "/api/v1/configure",
            "getConfiguration",
            "Show the options of a queue",
            [Answer("All options, defaults included, as `configure` takes them", ConfigurationAnswer)],
            (400, 404, 503),
            parameters=(Parameter("queue", "Name of the queue", NAME, required=True),),
        ),
        Operation(
            "GET",
            "/api/v1/resources/queues",
            "listQueues",
            "List queues",
            [Answer("A page, by default the newest; `total` counts all that match", QueueList)],
            (400, 503),
            parameters=(
                NAMESPACE,
                TASK,
                QUEUES,
                SEARCH,
                order(QueueOrder, QueueOrder.NEWEST),
                *page(LIMIT),
            ),
        ),
        Operation(
            "GET",
            "/api/v1/resources/queues/{queue}",
            "getQueue",
            "Show a queue with its partitions",
            [Answer("Totals are those of the whole queue, whatever the page", QueueAnswer)],
            (400, 404, 503),
            parameters=(QUEUE_PATH, PARTITION, *page(PARTITIONS_LIMIT)),
            route=_QUEUE,
        ),
        Operation(
            "DELETE",
            "/api/v1/resources/queues/{queue}",
            "deleteQueue",
            "Delete a queue with all it holds",
            [Answer("An unknown queue is an answer too", QueueDeletedAnswer)],
            (400, 503),
            parameters=(QUEUE_PATH,),
            route=_QUEUE,
        ),
        Operation(
            "GET",
            "/api/v1/resources/queues/{queue}/depth",
            "getQueueDepth",
            "What a group has still to do in a queue",
            [Answer("For the named group, or for the slowest", DepthAnswer)],
            (400, 404, 503),
            parameters=(
                QUEUE_PATH,
                Parameter("group", "Consumer group", NAME),
                Parameter("consumerGroup", "The same under its other name", NAME),
                *page(PARTITIONS_LIMIT),
            ),
            route=_QUEUE,
        ),
        Operation(
            "GET",
            "/api/v1/resources/partitions",
            "listPartitions",
            "List partitions",
            [Answer("A page, by queue and name", PartitionList)],
            (400, 503),
            parameters=(QUEUE, PARTITION, *page(100)),
        ),
        Operation(
            "GET",
            "/api/v1/resources/namespaces",
            "listNamespaces",
            "List namespaces",
            [Answer("A page, in the order of the alphabet", NamespaceList)],
            (400, 503),
            parameters=page(LIMIT),
        ),
        Operation(
            "GET",
            "/api/v1/resources/tasks",
            "listTasks",
            "List tasks",
            [Answer("A page, in the order of the alphabet", TaskList)],
            (400, 503),
            parameters=page(LIMIT),
        ),
        Operation(
            "GET",
            "/api/v1/resources/overview",
            "getOverview",
            "The whole installation at a glance",
            [Answer("Counts, lag and throughput", OverviewAnswer)],
            (503,),
        ),
    ],
)
