"""Batch policies: what can be set of those in ``queen.core.batch_policy``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from queen.config.variable import Form, parse, whole_number
from queen.core.batch_policy import BatchPolicy
from queen.core.job_type import JobType

#: Job types whose batch policy can be set: those of Queen MQ.
TYPES = (JobType.PUSH, JobType.POP, JobType.ACK, JobType.TRANSACTION, JobType.RENEW_LEASE, JobType.CUSTOM)

#: ``QUEEN_<TYPE>_…``: the field of the policy and the form of the value.
OF_TYPE: Mapping[str, tuple[str, Form]] = {
    "PREFERRED_BATCH_SIZE": ("preferred", whole_number(1, 100_000)),
    "MAX_HOLD_MS": ("hold_ms", whole_number(0, 60_000)),
    "MAX_BATCH_SIZE": ("batch_max", whole_number(1, 100_000)),
    "MAX_CONCURRENT": ("in_flight_max", whole_number(1, 1000)),
}

#: Variables that set a field for all job types. A variable of one type wins.
OF_ALL: Mapping[str, tuple[str, Form]] = {
    "SIDECAR_MICRO_BATCH_WAIT_MS": ("hold_ms", whole_number(0, 60_000)),
    "SIDECAR_MAX_ITEMS_PER_TX": ("items_max", whole_number(1, 10_000_000)),
}


#: The name that the first design has for the items of a push.
OF_PUSH: Mapping[str, tuple[str, Form]] = {"BATCH_INSERT_SIZE": OF_ALL["SIDECAR_MAX_ITEMS_PER_TX"]}


def variables(kind: JobType) -> Mapping[str, tuple[str, Form]]:
    """The variables that set a field of the policy of a job type; the last that is set wins."""
    of_type = {f"QUEEN_{kind.name}_{suffix}": field for suffix, field in OF_TYPE.items()} if kind in TYPES else {}
    return {**OF_ALL, **of_type, **(OF_PUSH if kind is JobType.PUSH else {})}


def read(environment: Mapping[str, str], base: Mapping[JobType, BatchPolicy]) -> Mapping[JobType, BatchPolicy]:
    """The policy of each job type; ``base`` has what the environment does not set.

    Raises:
        SettingError: a value is out of its range.
    """
    return {kind: _policy(environment, kind, base[kind]) for kind in JobType}


def _policy(environment: Mapping[str, str], kind: JobType, base: BatchPolicy) -> BatchPolicy:
    changes: dict[str, Any] = {
        field: parse(name, environment[name], form)
        for name, (field, form) in variables(kind).items()
        if name in environment
    }
    return replace(base, **changes)
