"""The operations of simple-mq, in the order of the OpenAPI document."""

from queen.http.operation import Topic
from queen.operations.prometheus import get_actuator_prometheus
from queen.simple_mq.operations import (
    acknowledge,
    actuator,
    create_queue,
    dequeue,
    enqueue,
    peek,
    queues,
    requeue,
    visibility,
)

SIMPLE_MQ = Topic(
    "simple-mq",
    "A second interface in the style of SQS, with separate queues: size limits, visibility timeouts, and "
    "dead-letter queues.",
    [
        create_queue.create_queue,
        queues.list_queues,
        queues.get_queue,
        queues.delete_queue,
        requeue.requeue_queue,
        enqueue.enqueue,
        dequeue.dequeue,
        peek.peek,
        acknowledge.acknowledge_messages,
        acknowledge.acknowledge_message,
        requeue.requeue_message,
        visibility.extend_visibility,
        actuator.get_health,
        actuator.get_info,
        actuator.list_metrics,
        get_actuator_prometheus,
    ],
    prefix="SimpleMq",
)
