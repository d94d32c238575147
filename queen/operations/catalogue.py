"""The table of contents of Queen's interface: its operations, by topic, in the order of the OpenAPI document."""

from collections.abc import Sequence

from queen.http.operation import Topic
from queen.operations.acknowledge import acknowledge, acknowledge_batch
from queen.operations.analytics import get_analytics
from queen.operations.buffers import get_buffers
from queen.operations.commit_cycle import commit_cycle
from queen.operations.configure import configure_queue, get_configuration
from queen.operations.consumer_groups import (
    delete_consumer_group,
    delete_consumer_group_of_queue,
    get_consumer_group,
    list_consumer_groups,
    list_queues_of_group,
)
from queen.operations.dashboard import get_dashboard, get_dashboard_file
from queen.operations.dead_letter_errors import list_dead_letter_errors
from queen.operations.delete_dead_letters import delete_dead_letter, purge_dead_letters
from queen.operations.documentation import get_contract, get_documentation, get_documentation_asset
from queen.operations.extend_lease import extend_lease
from queen.operations.give_up_message import give_up_message
from queen.operations.group_connected import list_consumers
from queen.operations.group_lag import get_group_lag
from queen.operations.health import get_health, get_liveness, get_readiness
from queen.operations.identity import get_identity
from queen.operations.labels import list_namespaces, list_tasks
from queen.operations.lagging import list_lagging_partitions
from queen.operations.list_databases import list_databases
from queen.operations.list_dead_letters import list_dead_letters
from queen.operations.list_messages import list_messages
from queen.operations.list_traces import list_trace_names, list_traces_by_name, list_traces_of_message
from queen.operations.maintenance import get_maintenance, get_pop_maintenance, set_maintenance, set_pop_maintenance
from queen.operations.message import delete_message, get_message
from queen.operations.metrics import get_metrics
from queen.operations.newest_messages import list_queue_messages
from queen.operations.notify import notify
from queen.operations.overview import get_overview
from queen.operations.parked_pops import get_parked_pops
from queen.operations.partitions import list_partitions
from queen.operations.pause import pause_consumer_group, pause_queue
from queen.operations.pop import pop_label, pop_partition, pop_queue
from queen.operations.postgres_statistics import get_postgres_statistics
from queen.operations.prometheus import get_prometheus_metrics
from queen.operations.push import push
from queen.operations.queue_depth import get_queue_depth
from queen.operations.queue_metrics import get_queue_lag, get_queue_operations
from queen.operations.queue_status import get_queue_status, list_queue_status
from queen.operations.queues import delete_queue, get_queue, list_queues
from queen.operations.read_stream_state import read_stream_state
from queen.operations.record_trace import record_trace
from queen.operations.refresh_statistics import refresh_statistics
from queen.operations.register_stream import register_stream
from queen.operations.replay_dead_letter import replay_dead_letter, retry_message
from queen.operations.replay_dead_letters import replay_dead_letters
from queen.operations.retention_metrics import get_retention
from queen.operations.schedules import delete_schedule, list_schedules, set_schedule
from queen.operations.seek import preview_seek, seek_consumer_group, seek_partition
from queen.operations.status import get_status
from queen.operations.subscribe import subscribe
from queen.operations.subscription import update_subscription
from queen.operations.system_metrics import get_system_metrics
from queen.operations.timers import cancel_timer, change_timers, get_timer, list_timers
from queen.operations.transact import transact
from queen.operations.worker_metrics import get_worker_metrics

TOPICS: Sequence[Topic] = (
    Topic(
        "Messages on their way",
        "Producers push messages, consumers pop and acknowledge them. `docs/semantics.md` defines each "
        "operation in all cases.",
        [push, pop_queue, pop_partition, pop_label, acknowledge, acknowledge_batch, extend_lease, transact, subscribe],
    ),
    Topic(
        "Queues",
        "Queues and their contents. Statistics are as old as `statsAge` says, in seconds (-1: never computed); "
        "those of small queues are always current.",
        [
            configure_queue,
            get_configuration,
            list_queues,
            get_queue,
            delete_queue,
            pause_queue,
            get_queue_depth,
            list_partitions,
            list_namespaces,
            list_tasks,
            get_overview,
        ],
    ),
    Topic(
        "Single messages",
        "For people who inspect a queue. The path of a message has its partition id and its transaction id.",
        [list_messages, get_message, delete_message, retry_message, give_up_message],
    ),
    Topic(
        "Dead letters",
        "Messages that a group gave up, with the error.",
        [
            list_dead_letters,
            list_dead_letter_errors,
            purge_dead_letters,
            delete_dead_letter,
            replay_dead_letter,
            replay_dead_letters,
        ],
    ),
    Topic(
        "Consumer groups",
        "A group has one cursor per partition. Groups are independent of each other.",
        [
            list_consumer_groups,
            list_lagging_partitions,
            get_consumer_group,
            list_queues_of_group,
            delete_consumer_group,
            delete_consumer_group_of_queue,
            update_subscription,
            preview_seek,
            seek_consumer_group,
            seek_partition,
            pause_consumer_group,
            list_consumers,
            get_group_lag,
            refresh_statistics,
        ],
    ),
    Topic(
        "Timers",
        "Messages that enter the log at a time, unless they are cancelled before. `docs/timers.md` is a guide.",
        [change_timers, list_timers, get_timer, cancel_timer, set_schedule, list_schedules, delete_schedule],
    ),
    Topic(
        "Traces",
        "What consumers record about the messages that they process.",
        [record_trace, list_trace_names, list_traces_by_name, list_traces_of_message],
    ),
    Topic(
        "Streams",
        "A stream reads a queue, keeps state, and writes to another queue. A cycle commits input, state and "
        "output together, and only once.",
        [register_stream, commit_cycle, read_stream_state],
    ),
    Topic(
        "Status",
        "Current and recent activity. Series have buckets of `bucketMinutes`, newest first.",
        [
            get_status,
            list_queue_status,
            get_queue_status,
            list_queue_messages,
            get_analytics,
            get_buffers,
            list_databases,
            get_system_metrics,
            get_worker_metrics,
            get_queue_lag,
            get_queue_operations,
            get_parked_pops,
            get_retention,
            get_postgres_statistics,
            get_metrics,
            get_prometheus_metrics,
        ],
    ),
    Topic(
        "System",
        "The server itself.",
        [
            get_health,
            get_liveness,
            get_readiness,
            get_identity,
            get_maintenance,
            set_maintenance,
            get_pop_maintenance,
            set_pop_maintenance,
            notify,
            get_contract,
            get_documentation,
            get_documentation_asset,
            get_dashboard,
            get_dashboard_file,
        ],
    ),
)
