"""JSON Schemas of bodies, from the structs that decode and encode them and from their docstrings.

``msgspec.json.schema_components`` does nearly this. But it cannot show a default of type ``Raw``, and does not
distinguish a request, which may omit fields with a default, from an answer, which has them.
"""

import inspect
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args

from msgspec import NODEFAULT, Struct
from msgspec import inspect as types

Schema = dict[str, Any]

#: Begins every reference to a component.
COMPONENTS = "#/components/schemas/"
_ATTRIBUTE = re.compile(r"^    (\w+): ", re.MULTILINE)
_PLAIN: Mapping[type[types.Type], Schema] = {
    types.NoneType: {"type": "null"},
    types.BoolType: {"type": "boolean"},
    types.IntType: {"type": "integer"},
    types.FloatType: {"type": "number"},
    types.StrType: {"type": "string"},
    types.UUIDType: {"type": "string", "format": "uuid"},
    # Any JSON.
    types.RawType: {},
    types.AnyType: {},
}


class Schemas:
    """The schemas of the bodies of one interface, and their components.

    Args:
        prefix: of the names of all components.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.components: dict[str, Schema] = {}

    def of_request(self, body: Any) -> Schema:  # noqa: ANN401 - a type
        """The schema of a request body."""
        return self._any_of(body, sent=False)

    def of_answer(self, body: Any) -> Schema:  # noqa: ANN401 - a type
        """The schema of an answer: with all fields, unless the encoder omits defaults."""
        return self._any_of(body, sent=True)

    def _any_of(self, body: Any, *, sent: bool) -> Schema:  # noqa: ANN401 - a type
        # msgspec does not support unions of structs without tags.
        parts = get_args(body) if isinstance(body, UnionType) else (body,)
        schemas = [self._schema(types.type_info(part), sent=sent) for part in parts]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _schema(self, info: types.Type, *, sent: bool) -> Schema:
        match info:
            case types.Metadata():
                return self._schema(info.type, sent=sent) | (info.extra_json_schema or {})
            case types.UnionType():
                return {"anyOf": [self._schema(each, sent=sent) for each in info.types]}
            case types.CollectionType():
                return {"type": "array", "items": self._schema(info.item_type, sent=sent)}
            case types.DictType():
                return {"type": "object", "additionalProperties": self._schema(info.value_type, sent=sent)}
            case types.StructType():
                return self._reference(info, sent=sent)
            case _:
                return dict(_PLAIN[type(info)])

    def _reference(self, info: types.StructType, *, sent: bool) -> Schema:
        name = f"{self._prefix}{info.cls.__name__}"
        if name not in self.components:
            self.components[name] = {}
            self.components[name] = self._component(info, sent=sent)
        return {"$ref": f"{COMPONENTS}{name}"}

    def _component(self, info: types.StructType, *, sent: bool) -> Schema:
        text, meanings = _explained(info.cls)
        properties: dict[str, Schema] = {}
        if info.tag is not None:
            properties[info.tag_field or "type"] = {"const": info.tag}
        required = list(properties)
        for field in info.fields:
            schema = self._schema(field.type, sent=sent)
            if field.name in meanings:
                schema = schema | {"description": meanings[field.name]}
            if isinstance(field.default, str | int | float) and not sent:
                schema = schema | {"default": field.default}
            properties[field.encode_name] = schema
            if field.required or (sent and _is_sent(field, info.cls)):
                required.append(field.encode_name)
        return {"type": "object", "description": text, "properties": properties, "required": required}


def _is_sent(field: types.Field, struct: type[Struct]) -> bool:
    """Whether an answer always has an optional field; a field without a default may be unset."""
    has_default = field.default is not NODEFAULT or field.default_factory is not NODEFAULT
    return has_default and not struct.__struct_config__.omit_defaults


def _explained(struct: type[Struct]) -> tuple[str, Mapping[str, str]]:
    """The descriptions of a struct and of its fields (``Attributes``), from its docstring."""
    text = inspect.cleandoc(struct.__doc__ or "").replace("``", "`")
    text, _, attributes = text.partition("\n\nAttributes:\n")
    parts = _ATTRIBUTE.split(attributes)[1:]
    return _joined(text), {name: _joined(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip())
