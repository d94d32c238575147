"""Batches: what their entries must have in common, and how their results are answered."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from queen.sqs.errors import SqsError, missing

ENTRIES_MAX = 10

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_entries(entries: Sequence[Any], name: str) -> None:
    """Checks the number and the ids of entries; ``name`` is that of an entry in the query protocol."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {name} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    seen = set()
    for number, entry in enumerate(entries, 1):
        if entry is None or entry.Id is None:
            raise missing(f"{name}.{number}.Id")
        if not _ID.fullmatch(entry.Id):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at "
                "most 80 letters long.",
            )
        if entry.Id in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry.Id} repeated.")
        seen.add(entry.Id)


def batch_answer(successful: list[dict[str, Any]], failed: Mapping[str, SqsError]) -> dict[str, Any]:
    """The answer to a batch: its entries by their result, lists only with elements."""
    found: dict[str, Any] = {"Successful": successful} if successful else {}
    if failed:
        found["Failed"] = [
            {"Id": name, "SenderFault": problem.kind.sender, "Code": problem.kind.code, "Message": str(problem)}
            for name, problem in failed.items()
        ]
    return found
