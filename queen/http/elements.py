"""Counts the elements of a request before it is decoded, because each element takes about a kilobyte of memory.

A decoder creates all elements before their number can be checked: two million messages of 27 bytes are a request of
60 MiB, and take two gigabytes. Here the same text is decoded into a type with empty objects and without lists of
strings.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct, inspect


class _Empty(Struct, gc=False):
    """Any object."""


def count_elements(decoder: "msgspec.json.Decoder[Any]", body: bytes, most: int) -> int:
    """The number of elements that the decoder would create, including nested ones; an upper bound for lists of strings.

    Beyond ``most`` it counts no further, because a million small objects with lists take seconds: the number is only
    some number above ``most`` then.

    Raises:
        msgspec.DecodeError: the body does not match the type.
        RecursionError: it is nested too deeply.
    """
    counting = _counting(decoder.type)  # type: ignore[arg-type]
    return _count(counting.decode(body), most) if counting is not None else 0


def _count(found: object, most: int) -> int:
    if isinstance(found, Raw):
        return bytes(found).count(b",") + 1 if found else 0
    nested: Iterable[object] = [getattr(found, name) for name in getattr(found, "__struct_fields__", ())]
    total = 0
    if isinstance(found, list):
        total = len(found)
        nested = found if found and type(found[0]) is not _Empty else ()
    for each in nested:
        if total > most:
            break
        total += _count(each, most - total)
    return total


@lru_cache(maxsize=64)
def _counting(kind: Any) -> "msgspec.json.Decoder[Any] | None":  # noqa: ANN401 - any type
    shape = _shape([inspect.type_info(kind)])
    return msgspec.json.Decoder(shape) if shape is not None else None


def _shape(kinds: Sequence[inspect.Type]) -> Any:  # noqa: ANN401 - a type, or None for one without lists
    """The type reduced to its lists."""
    lists = [kind for kind in kinds if isinstance(kind, inspect.ListType)]
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    if lists:
        item = lists[0].item_type
        return list[_shape([item]) or _Empty] | None if isinstance(item, inspect.StructType) else Raw  # type: ignore[misc]
    return _shape_of(structs[0]) if len(structs) == 1 else None


def _shape_of(struct: inspect.StructType) -> Any:  # noqa: ANN401 - a type, or None for one without lists
    fields = [(field.encode_name, _shape(_alternatives(field.type))) for field in struct.fields]
    kept = [(name, shape, msgspec.field(default=None)) for name, shape in fields if shape is not None]
    return msgspec.defstruct("Counted", kept, gc=False) if kept else None


def _alternatives(kind: inspect.Type) -> Sequence[inspect.Type]:
    """The possible types of a value."""
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [each for member in kind.types for each in _alternatives(member)]
    return [kind]
