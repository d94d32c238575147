"""botocore's model of SQS as types: a struct for each request, which decodes and checks it. And actions of our own."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from msgspec import Struct

from queen.sqs.errors import SqsError, missing

_SCALARS: Mapping[str, type] = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": bytes}


class Action(Struct, frozen=True):
    """An operation of SQS.

    Attributes:
        name: as clients call it.
        request: the type of its parameters, all of them optional.
        required: the parameters that must be given.
        decoder: of a request in JSON.
    """

    name: str
    request: type[Struct]
    required: tuple[str, ...]
    decoder: "msgspec.json.Decoder[Any]"

    def from_json(self, body: bytes) -> Any:  # noqa: ANN401 - a struct made from the model
        """The parameters of a request in JSON."""
        try:
            return self.decoder.decode(body or b"{}")
        except (msgspec.DecodeError, RecursionError) as problem:
            raise SqsError("SerializationException", f"The request is not valid: {problem}") from None

    def from_texts(self, given: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """The parameters of a query, in which all values are texts."""
        try:
            return msgspec.convert(given, self.request, strict=False)
        except msgspec.ValidationError as problem:
            raise SqsError("InvalidParameterValueException", f"The request is not valid: {problem}") from None

    def check_required(self, request: Struct) -> None:
        """Raises an error for the first required parameter that is missing."""
        for name in self.required:
            if getattr(request, name) is None:
                raise missing(name)


class _ListQueues(Struct, frozen=True):
    """The parameters of ``Queen.ListQueues``."""

    Search: str | None = None
    MaxResults: int | None = None
    NextToken: str | None = None


class _PeekMessages(Struct, frozen=True):
    """The parameters of ``Queen.PeekMessages``."""

    QueueUrl: str | None = None
    MaxResults: int | None = None
    NextToken: str | None = None


_OWN: Mapping[str, type[Struct]] = {"Queen.ListQueues": _ListQueues, "Queen.PeekMessages": _PeekMessages}


@cache
def actions() -> Mapping[str, Action]:
    """All actions, by name. botocore's model is loaded with the first call."""
    service = ServiceModel(Loader().load_service_model("sqs", "service-2"), "sqs")
    types: dict[str, Any] = {}
    of_aws = {name: _action(service.operation_model(name), types) for name in service.operation_names}
    return of_aws | {name: Action(name, kind, (), msgspec.json.Decoder(kind)) for name, kind in _OWN.items()}


def _action(operation: OperationModel, types: dict[str, Any]) -> Action:
    shape = operation.input_shape
    request = _type_of(shape, types)
    # A request to the URL of a queue need not name it again.
    required = tuple(name for name in shape.required_members if name != "QueueUrl")
    return Action(operation.name, request, required, msgspec.json.Decoder(request))


def _type_of(shape: Shape, types: dict[str, Any]) -> Any:  # noqa: ANN401 - a type
    if shape.name not in types:
        types[shape.name] = _new_type(shape, types)
    return types[shape.name]


def _new_type(shape: Shape, types: dict[str, Any]) -> Any:  # noqa: ANN401
    if isinstance(shape, StructureShape):
        fields = [(name, _type_of(member, types) | None, None) for name, member in shape.members.items()]
        return msgspec.defstruct(shape.name, fields, frozen=True)
    if isinstance(shape, ListShape):
        return list[_type_of(shape.member, types)]  # type: ignore[misc]
    if isinstance(shape, MapShape):
        return dict[str, _type_of(shape.value, types)]  # type: ignore[misc]
    return _SCALARS[shape.type_name]
