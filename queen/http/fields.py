"""Types of request fields with limits, for OpenAPI. The parser checks the limits.

``extra_json_schema`` only describes a limit; the parser refuses values, with errors that name the field.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from queen.core import limits

#: Every character but U+0000, which PostgreSQL cannot store.
NO_NUL = "^[^\\u0000]*$"


def text_of(chars_min: int, chars_max: int) -> Mapping[str, Any]:
    """The JSON Schema of a string without NUL."""
    schema = {"type": "string", "minLength": chars_min, "maxLength": chars_max, "pattern": NO_NUL}
    return {name: value for name, value in schema.items() if value != 0}


def number_of(low: int, high: int) -> Mapping[str, Any]:
    """The JSON Schema of a whole number."""
    return {"type": "integer", "minimum": low, "maximum": high}


def _shown(schema: Mapping[str, Any]) -> Meta:
    return Meta(extra_json_schema={name: value for name, value in schema.items() if name != "type"})


def between(low: int, high: int) -> Meta:
    """Limits of a number, for ``Annotated``."""
    return _shown(number_of(low, high))


#: A queue, partition, namespace or task.
Name = Annotated[str, _shown(text_of(1, limits.NAME_CHARS_MAX))]
#: The same; an empty string means none.
Label = Annotated[str, _shown(text_of(0, limits.NAME_CHARS_MAX))]
#: A consumer group; empty is queue mode.
GroupName = Annotated[str, _shown(text_of(0, limits.GROUP_CHARS_MAX))]
#: A transaction id that a producer chooses; empty means none.
TransactionId = Annotated[str, _shown(text_of(0, limits.TRANSACTION_ID_CHARS_MAX))]
#: A required string of any length.
Required = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
#: A string of any length.
WithoutNul = Annotated[str, Meta(extra_json_schema={"pattern": NO_NUL})]
#: A key of a stream's state.
StateKey = Annotated[str, _shown(text_of(1, limits.STATE_KEY_BYTES_MAX))]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
#: Where a new group starts: by mode, and by time.
MODE: Mapping[str, Any] = {"type": "string", "examples": ["all", "new", "new-only"]}
START: Mapping[str, Any] = {"anyOf": [{"const": "now"}, {"type": "string", "format": "date-time"}]}
Mode = Annotated[str, _shown(MODE)]
Start = Annotated[str, _shown(START)]
