"""What requests about a stream share: its query, and a partition of its input."""

from collections.abc import Mapping

from queen.core.errors import BadRequestError
from queen.log import ids

#: A number that no query and no partition has: for ids that this server did not create.
_NOBODY = 0

NO_OBJECT = "request body must be a JSON object"
#: Error texts of bodies with both ids, for ``decode``.
ID_TEXTS: Mapping[str, str] = {
    "": NO_OBJECT, "query_id": "query_id is required", "partition_id": "partition_id is required"
}  # fmt: skip


def require_ids(query_id: str, partition_id: str) -> None:
    """Raises BadRequestError if one is empty; names the field."""
    for field, value in (("query_id", query_id), ("partition_id", partition_id)):
        if not value:
            raise BadRequestError(ID_TEXTS[field], field)


def numbers_of(query_id: str, partition_id: str) -> tuple[int, int]:
    """The numbers of both; for ids that this server did not create, a number that nothing has."""
    return ids.parse_stream_id(query_id) or _NOBODY, ids.parse_partition_id(partition_id) or _NOBODY
