"""Which audits notice a wrong value, by column of the database and field of the journals; and if none does, why.

``tests/audit/test_coverage.py`` looks for a column without an entry, and plants wrong values in each that has audits.
"""

from collections.abc import Mapping
from types import MappingProxyType

Entry = tuple[str, ...] | str
"""Audits; or the reason why no audit can notice it, or need not."""

_CURSORS, _GROUPS, _LETTERS = (
    "cursors_stand_in_the_log", "groups_have_their_cursors", "dead_letters_are_of_their_messages",
)  # fmt: skip
_PARTS, _TIME, _WAITS, _IDS = (
    "partitions_are_complete", "no_time_lies_ahead", "what_waits_can_enter_the_log",
    "transaction_ids_are_those_of_the_log",
)  # fmt: skip
_PAYLOADS, _LOST, _READ = (
    "the_log_has_the_pushed_payloads", "answered_pushes_are_in_the_log", "every_segment_can_be_read",
)  # fmt: skip
_KEPT, _KNOWN, _ACKED = (
    "answered_dead_letters_are_kept", "cursors_know_what_was_delivered", "answered_acks_are_below_the_cursor",
)  # fmt: skip
_PASSED, _FORGOTTEN, _LIMITS, _SAYS = (
    "cursors_pass_only_what_is_done", "no_group_is_forgotten", "pops_keep_to_their_limits",
    "answers_do_not_contradict_themselves",
)  # fmt: skip
_DELIVERED, _EVERY, _LEASES, _EXCLUDES = (
    "deliveries_are_what_was_pushed", "every_group_gets_every_message", "only_leases_that_were_given_can_ack",
    "a_lease_excludes_all_others",
)  # fmt: skip
_DONE, _TIMES = "what_was_delivered_is_done_in_the_end", "delivered_times_are_those_of_the_log"

_OPTION = "an option: any value that can be set is right; `configure` and the journal of changes tell who set it"
_FIGURE = "a figure for people, computed again; nothing that is promised depends on it"
_LABEL = "a label: any text is right"
_ALONE = "nothing else says what it should be"
_BESIDE = "what a consumer or a stream wrote for itself; no other place has it"
_SHORT = "there for a moment: of calls under way, of the leader, or of work in pages; a wrong value ends with it"
_WRITER = "only tells a call that is repeated that it was done"
_NUMBER = "an internal number; what refers to it is checked"
_DEPENDS = "it waits outside the log, and no journal has it; its form is checked"

COLUMNS: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "queen.segments": {
            "part_id": (_PARTS, _LOST, "the_log_has_no_gap"),
            "last_off": ("the_log_has_no_gap", _LOST, _PARTS, "only_what_may_go_is_gone"),
            "n": (_PARTS, _READ, "the_log_has_no_gap"),
            "created_at": (_TIME, _TIMES, "logged_times_never_fall", "messages_have_the_time_of_their_push"),
            "flush": _WRITER,
            "ids": (_LOST, _IDS, _READ, "the_log_holds_what_was_pushed"),
            "ends": (_READ,),
            "data": (_READ, _PAYLOADS, _IDS),
            "cut": (_PARTS,),
            "*": ("the_log_has_no_gap", _LOST),
        },
        "queen.transaction_ids": {"part_id": (_IDS,), "hash": (_IDS,), "off": (_IDS,), "*": (_IDS,)},
        "queen.partition_consumers": {
            "part_id": (_GROUPS, _CURSORS),
            "grp_id": (_GROUPS, _PASSED),
            "acked": (_CURSORS, _ACKED, _PASSED),
            "ahead": (_CURSORS, _ACKED),
            "lease": (_KNOWN, _CURSORS),
            "upto": (_CURSORS, _KNOWN),
            "seen": (_CURSORS, _KNOWN),
            "seen_before": (_CURSORS,),
            "attempts": (_CURSORS,),
            "ready_at": (_CURSORS,),
            "retries": (_CURSORS,),
            "retry_at": (_CURSORS,),
            "prefetched_until": (_CURSORS,),
            "ver": "a count of updates: any value is right, but that another row has (the key)",
            "*": (_GROUPS,),
        },
        "queen.consumer_groups_metadata": {
            "id": (_GROUPS,),
            "queue_id": (_GROUPS, _FORGOTTEN),
            "name": (_FORGOTTEN,),
            "subscription_mode": (_GROUPS,),
            "since": (_GROUPS,),
            "starts_at": (_GROUPS,),
            "begins": (_GROUPS,),
            "subscribed_upto": (_GROUPS,),
            "created_at": (_TIME,),
            "paused": _OPTION,
            "*": (_GROUPS, _FORGOTTEN),
        },
        "queen.retired_groups": {
            "queue_id": "no one asks for the number of a group of another queue; if it comes again, its own is checked",
            "name": "the same",
            "id": (_GROUPS,),
            "*": "a group that comes again gets another number",
        },
        "queen.dead_letter_queue": {
            "id": _NUMBER,
            "queue_id": (_LETTERS, _KEPT),
            "part_id": (_LETTERS, _KEPT),
            "off": (_LETTERS, _KEPT),
            "grp_id": (_LETTERS,),
            "consumer_group": (_LETTERS, _KEPT),
            "transaction_id": (_LETTERS,),
            "trace_id": "not compared: no audit decides by it",
            "producer_sub": "not compared: no audit decides by it",
            "payload": (_LETTERS,),
            "error": "the text of a consumer, which no journal has",
            "retry_count": "failures by hand and in SQL count too",
            "created_at": (_LETTERS, _TIME),
            "failed_at": (_TIME, _LETTERS),
            "key_id": "a payload under another key cannot be decrypted (`G-SEC-5`)",
            "headers": (_LETTERS,),
            "*": (_KEPT,),
        },
        "queen.deleted_messages": {
            "part_id": (_PARTS,),
            "offsets": (_CURSORS, _PARTS),
            "*": "its messages are then like others, with a payload of null",
        },
        "queen.partitions": {
            "id": (_PARTS, _GROUPS),
            "queue_id": (_LOST, _GROUPS),
            "name": (_LOST, _PASSED),
            "created_at": (_TIME,),
            "*": (_PARTS, _GROUPS),
        },
        "queen.partition_locks": {"part_id": (_PARTS,), "*": (_PARTS,)},
        "queen.removed_partitions": {
            "part_id": (_PARTS,),
            "not_before": "when the rest of a moved partition is removed, which no call reads",
            "*": (_PARTS,),
        },
        "queen.queues": {
            "id": (_PARTS, _GROUPS),
            "name": "all of the queue goes with it; the report names queues of the journals that are not there",
            "namespace": _LABEL,
            "task": _LABEL,
            "priority": _OPTION,
            "lease_time": _OPTION,
            "retry_limit": _OPTION,
            "retry_delay": _OPTION,
            "delayed_processing": _OPTION,
            "window_buffer": _OPTION,
            "dead_letter_queue": _OPTION,
            "dlq_after_max_retries": _OPTION,
            "created_at": (_TIME,),
            "retention_enabled": _OPTION,
            "retention_seconds": _OPTION,
            "completed_retention_seconds": _OPTION,
            "ttl": _OPTION,
            "max_wait_time_seconds": _OPTION,
            "max_size": _OPTION,
            "encryption_enabled": _OPTION,
            "ever_encrypted": _OPTION,
            "paused": _OPTION,
            "sql_push": _OPTION,
            "colocate_with": _OPTION,
            "*": (_PARTS, _GROUPS),
        },
        "queen.outbox": {
            "xid": (_WAITS,),
            "seq": _NUMBER,
            "queue_id": (_WAITS,),
            "partitions": _DEPENDS,
            "transaction_ids": _DEPENDS,
            "payloads": (_WAITS,),
            "pushed_at": (_TIME,),
            "fields": _DEPENDS,
            "n": (_WAITS,),
            "*": "`kind` `sql` of the journals has it: pushes_with_sql_commit_with_their_transaction",
        },
        "queen.outbox_position": {
            "id": "one row, by its key",
            "moves": "a count; a move with another one begins again",
            "messages": "a count, of what may be in the log without a push in a journal",
            "seen": (_WAITS,),
            "target": (_WAITS,),
            "last_xid": (_WAITS,),
            "last_seq": (_WAITS,),
            "*": (_WAITS,),
        },
        "queen.outbox_held": {
            "queue_id": (_WAITS,),
            "partition": (_WAITS,),
            "seq": (_WAITS,),
            "transaction_id": _DEPENDS,
            "fields": _DEPENDS,
            "payload": (_WAITS,),
            "pushed_at": (_TIME,),
            "*": "`kind` `sql` of the journals has it: pushes_with_sql_commit_with_their_transaction",
        },
        "queen.outbox_held_partitions": {
            "queue_id": (_WAITS,),
            "partition": (_WAITS,),
            "since": (_TIME,),
            "reason": _LABEL,
            "tries": _FIGURE,
            "retry_at": (_WAITS,),
            "moved_seq": (_WAITS,),
            "*": (_WAITS,),
        },
        "queen.timers": {
            "deliver_at": "any time up to ten years ahead is right",
            "seq": _NUMBER,
            "queue_id": (_WAITS,),
            "key": _DEPENDS,
            "partition": _DEPENDS,
            "transaction_id": (_WAITS,),
            "asked_at": (_TIME, _WAITS),
            "message": (_WAITS,),
            "*": _DEPENDS,
        },
        "queen.schedules": {
            "queue_id": (_WAITS,),
            "name": _LABEL,
            "cron": (_WAITS,),
            "time_zone": (_WAITS,),
            "catch_up": (_WAITS,),
            "partition": _DEPENDS,
            "message": (_WAITS,),
            "last_at": (_TIME, _WAITS),
            "next_at": "only when it is looked at: computed anew then",
            "*": _DEPENDS,
        },
        "queen.traces": {
            "id": _NUMBER,
            "queue_id": (_PARTS,),
            "part_id": (_PARTS,),
            "off": (_PARTS,),
            "consumer_group": _LABEL,
            "event_type": _LABEL,
            "data": _BESIDE,
            "worker": _LABEL,
            "created_at": (_TIME,),
            "*": _BESIDE,
        },
        "queen.trace_names": {"name": _LABEL, "trace_id": "a foreign key", "*": _BESIDE},
        "queen.streams": {
            "id": _NUMBER,
            "name": _LABEL,
            "source_queue": _LABEL,
            "sink_queue": _LABEL,
            "config_hash": "a worker that registers with another one is refused",
            "created_at": (_TIME,),
            "registered_at": (_TIME,),
            "*": _BESIDE,
        },
        "queen.stream_state": {
            "part_id": (_PARTS,),
            "stream_id": _BESIDE,
            "key": _BESIDE,
            "value": _BESIDE,
            "window_end": _BESIDE,
            "updated_at": (_TIME,),
            "*": _BESIDE,
        },
        "queen.stream_cycles": {
            "part_id": (_PARTS,),
            "stream_id": _WRITER,
            "grp_id": _WRITER,
            "flush": _WRITER,
            "cycled_at": (_TIME,),
            "*": _WRITER,
        },
        "queen.queue_sizes": dict.fromkeys(("queue_id", "ver", "most", "pushed", "resets", "*"), _FIGURE)
        | {"asked_at": (_TIME,)},
        "queen.spool_lanes": dict.fromkeys(("lane", "replayed", "*"), "an outage's, which the audit of the log judges")
        | {"replayed_at": (_TIME,)},
        "queen.fenced_flushes": {"flush": _WRITER, "fenced_at": (_TIME,), "*": _WRITER},
        "queen.system_state": {"key": _OPTION, "value": _OPTION, "updated_at": (_TIME,), "*": _OPTION},
        "queen.earlier_procedures": dict.fromkeys(("signature", "definition", "restored", "*"), "of upgrades")
        | {"replaced_at": (_TIME,)},
        "queen.clock": dict.fromkeys(
            ("id", "boot", "began", "ended", "set_back", "repaired_part", "repaired_queue", "repaired_at", "*"), _SHORT
        )
        | {"looked_at": (_TIME,)},
    }
)
"""By table and column; ``*`` is a row that is missing, or there twice. Tables of ``ALL_ALIKE`` have one entry."""

ALL_ALIKE: Mapping[str, str] = MappingProxyType(
    {
        "queen.queue_stats": _FIGURE,
        "queen.group_stats": _FIGURE + "; a group that does not exist is seen (groups_have_their_cursors)",
        "queen.group_metrics": _FIGURE,
        "queen.connected_consumers": _SHORT,
        "queen.queue_metrics": _FIGURE,
        "queen.worker_metrics": _FIGURE,
        "queen.total_metrics": _FIGURE,
        "queen.retention_metrics": _FIGURE,
        "queen.busy_queues": _FIGURE,
        "queen.clock_steps": "of the clock of PostgreSQL, which nothing else measures",
        "queen.push_options": "a version: a push with another one is refused and laid out again",
        "queen.service_leader": _SHORT,
        "queen.open_cursors": _SHORT,
        "queen.pending_configurations": _SHORT,
        "queen.migrations": "of upgrades",
        **dict.fromkeys(
            ("queen.shards", "queen.shard_list"),
            "of several databases: `queen doctor` compares the list in each; a partition that two of them have is seen "
            "(partitions_are_complete)",
        ),
        "queen.moved_partitions": "where partitions are that were moved: they are seen there (partitions_are_complete)",
        "simple_mq.queues": "judged with `--interface simple-mq`: size, limit, dead-letter queue and parent",
        "simple_mq.messages": "judged with `--interface simple-mq`: queue, id, count and data",
        "simple_mq.counts": "judged with `--interface simple-mq`: the_count_is_that_of_the_messages",
        "simple_mq.heads": _SHORT,
        "simple_mq.flushes": _WRITER,
        "simple_mq.deleted_queues": _SHORT,
        "simple_mq.outcomes": _FIGURE,
        **dict.fromkeys(
            (
                "simple_mq.sqs_queues",
                "simple_mq.sqs_deduplication",
                "simple_mq.sqs_attempts",
                "simple_mq.sqs_moves",
            ),
            "of SQS, whose audits judge what clients were answered (`--interface sqs`)",
        ),
    }
)

_NAME = "a name: any text is right"
_CUT = "without it, or with another one, the agent counts as cut short, and the report says so"
_BOUND = "only a bound: another value makes verdicts less sharp"
_REFUSED = "refused when the journal is read"

FIELDS: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "": {
            "run": _NAME,
            "agent": _CUT,
            "number": _CUT,
            "version": _REFUSED,
            "kind": (_EVERY, _LEASES, _PASSED),
            "client": _NAME,
            "sent": ("messages_have_the_time_of_their_push", _SAYS, _EXCLUDES),
            "answered": (_SAYS, "what_is_done_does_not_come_again"),
            "outcome": (_SAYS,),
            "queue": (_LIMITS,),
            "partition": (_LIMITS,),
            "group": (_FORGOTTEN, _EVERY, _LEASES),
            "batch": "what was asked for; only less than was given is wrong (pops_keep_to_their_limits)",
            "partitions": "what was asked for; only less than was given is wrong (pops_keep_to_their_limits)",
            "auto_ack": (_LIMITS, _PASSED),
            "lease": (_LEASES, _EXCLUDES, _LIMITS),
            "lease_seconds": _BOUND,
            "retry_limit": ("dead_letters_come_in_time",),
            "server_time": _BOUND + "; contradictions are reported as a clock that moved",
            "server_precision": _BOUND,
            "*": (_EVERY, _LEASES, _PASSED),
        },
        "pushes": {
            "queue": (_LOST, "the_log_holds_what_was_pushed"),
            "partition": (_LOST, "the_log_holds_what_was_pushed"),
            "transaction_id": (_LOST, _EVERY),
            "outcome": (_SAYS,),
            "duplicate": ("a_transaction_id_is_stored_once", "a_duplicate_has_an_original_in_its_partition"),
            "spooled": (_SAYS, "a_transaction_id_is_stored_once"),
            "offset": (_LOST, "a_transaction_id_is_stored_once"),
            "message_id": ("a_transaction_id_is_stored_once", _LOST),
            "payload_hash": (_DELIVERED, _PAYLOADS),
            "*": ("the_log_holds_what_was_pushed", "a_transaction_id_is_stored_once"),
        },
        "deliveries": {
            "queue": (_LIMITS, _EVERY),
            "partition": (_LIMITS, _EVERY),
            "transaction_id": (_EVERY, _LEASES, _DELIVERED),
            "offset": (_SAYS, "first_deliveries_in_offset_order", "a_transaction_id_is_stored_once"),
            "attempt": ("attempts_rise", "attempts_are_at_most_the_deliveries"),
            "created_at": (_TIMES, "delivered_times_never_fall"),
            "message_id": (_SAYS, _DELIVERED),
            "payload_hash": (_DELIVERED,),
            "*": (_EVERY, "first_deliveries_in_offset_order"),
        },
        "acks": {
            "queue": (_PASSED, _DONE),
            "partition": (_PASSED, _DONE),
            "transaction_id": (_PASSED, _DONE),
            "group": (_PASSED, _DONE),
            "status": (_SAYS, _PASSED),
            "lease": (_LEASES, _EXCLUDES),
            "outcome": (_SAYS, _PASSED, "dead_letters_come_in_time"),
            "dead": (_KEPT, _SAYS),
            "noop": "an ack as `completed` may repeat another; with another status it is noticed",
            "error": "the server's words for a refusal",
            "offset": "a convenience of agents: messages are known by their ids",
            "message_id": "a convenience of agents: messages are known by their ids",
            "*": (_PASSED, _DONE),
        },
    }
)
"""By list of a call (``""``: the call) and field; ``*`` is a row or element that is missing, or there twice."""

_OF_SQS, _WAS_SENT, _COUNTED = "no field of SQS", "what_is_received_was_sent", "no_sent_message_is_lost"
_LESS = "with another value less can be judged"
_AGAIN, _REPEATED, _GIVEN_UP = (
    "a_received_message_is_hidden", "a_repeated_receive_has_the_same_messages",
    "dead_letters_come_after_the_last_receive",
)  # fmt: skip

SQS_FIELDS: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "": {
            **dict.fromkeys(("partition", "partitions", "auto_ack"), _OF_SQS),
            **dict.fromkeys(("server_time", "server_precision", "lease_seconds"), _BOUND),
            "run": _NAME,
            "agent": _CUT,
            "number": _CUT,
            "version": _REFUSED,
            "kind": (_COUNTED,),
            "client": _NAME,
            "sent": ("what_is_deleted_is_not_received_again",),
            "answered": (_AGAIN,),
            "outcome": _LESS + ": items have their own",
            "queue": _LESS + ": items have their own",
            "group": (_WAS_SENT,),
            "batch": ("no_more_is_left_than_was_sent",),
            "lease": (_AGAIN,),
            "retry_limit": (_GIVEN_UP,),
            "*": (_COUNTED, _WAS_SENT),
        },
        "pushes": {
            "queue": (_WAS_SENT,),
            "partition": (_WAS_SENT,),
            "transaction_id": (_WAS_SENT,),
            "outcome": (_WAS_SENT,),
            "duplicate": _OF_SQS,
            "spooled": _LESS,
            "offset": _OF_SQS,
            "message_id": (_WAS_SENT, _COUNTED),
            "payload_hash": (_WAS_SENT,),
            "*": (_WAS_SENT,),
        },
        "deliveries": {
            "queue": (_WAS_SENT,),
            "partition": (_WAS_SENT,),
            "transaction_id": (_WAS_SENT,),
            "offset": _OF_SQS,
            "attempt": (_GIVEN_UP,),
            "created_at": "only compared between messages of one deduplication id (a_deduplication_id_has_one_message)",
            "message_id": (_WAS_SENT,),
            "payload_hash": (_WAS_SENT,),
            "*": (_REPEATED,),
        },
        "acks": {
            **dict.fromkeys(
                ("partition", "transaction_id", "group", "status", "dead", "noop", "error", "offset"), _OF_SQS
            ),
            "queue": (_COUNTED,),
            "lease": _LESS,
            "outcome": (_COUNTED,),
            "message_id": (_COUNTED,),
            "*": (_COUNTED,),
        },
    }
)
"""As ``FIELDS``, for the calls of SQS; ``tests/audit/test_sqs.py`` plants the wrong values."""

PAGE = "docs/audit-coverage.md"
_HEAD = """# What audits see

This page says for each column of the database and each field of the [journals](journal.md) which
[audits](audit.md) would notice a wrong value; or why none can, or need not. `*` is a row that is missing, or there
twice. A wrong value that a column might rightly have, such as an option, is no contradiction, and is not noticed.

`tests/audit/test_coverage.py` damages each of them: null, the value of another row, two values swapped, the next one,
one far ahead, a row removed, a row doubled. Some must be noticed by an audit that stands here.

Generated by `python -m spark_validation.coverage` from `spark_validation/coverage.py`.
"""


def page() -> str:
    """The page with all entries."""
    parts = [_HEAD, "\n## Database\n"]
    parts += [_section(table, entries) for table, entries in sorted(COLUMNS.items())]
    parts += ["\n### Other tables\n\n| table | why not |\n|---|---|\n"]
    parts += [f"| `{table}` | {why} |\n" for table, why in sorted(ALL_ALIKE.items())]
    parts += ["\n## Journals\n"]
    parts += [_section(items or "a row", entries) for items, entries in FIELDS.items()]
    parts += ["\n## Journals of SQS\n"]
    parts += [_section(f"SQS: {items or 'a row'}", entries) for items, entries in SQS_FIELDS.items()]
    return "".join(parts)


def _section(name: str, entries: Mapping[str, Entry]) -> str:
    rows = "".join(f"| `{column}` | {_told(entry)} |\n" for column, entry in entries.items())
    return f"\n### {name}\n\n| | noticed by |\n|---|---|\n{rows}"


def _told(entry: Entry) -> str:
    if isinstance(entry, str):
        return f"*none:* {entry}"
    return ", ".join(audit.replace("_", " ") for audit in entry)


if __name__ == "__main__":
    from pathlib import Path

    Path(PAGE).write_text(page(), encoding="utf-8")
