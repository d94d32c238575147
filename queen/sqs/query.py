"""The query protocol: parameters in a form or a query string, answers in XML.

botocore's model describes SQS in JSON and has no names of elements, so those that differ from the members stand here.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from queen.sqs.contents import NOT_XML
from queen.sqs.errors import SqsError

_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

#: Parameters that are lists in a request, by the name of their elements.
_LISTS: Mapping[str, str] = {
    "AttributeName": "AttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "StringListValue": "StringListValues",
    "BinaryListValue": "BinaryListValues",
}
#: Parameters that are maps, by the name of their entries, and the names of key and value.
_MAPS: Mapping[str, tuple[str, str, str]] = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}
#: Clients give an empty list by the name of its parameter.
_EMPTY = frozenset(_LISTS.values())
_TAGS_OF_CREATE = {"Tag": "tags"}

#: Elements of lists in an answer.
_ELEMENTS: Mapping[str, str] = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
#: Entries of maps in an answer, with the name of their key.
_ENTRIES: Mapping[str, tuple[str, str]] = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}
_PARAMETERS_MAX = 2_000
_DEPTH_MAX = 8
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"})
_NUMBER = re.compile(r"[0-9]{1,4}")


def pairs(text: str) -> Mapping[str, str]:
    """The parameters of a form or query string."""
    try:
        found = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except (ValueError, UnicodeDecodeError):
        raise SqsError("SerializationException", "The parameters are not a valid form") from None
    return dict(found)


def parameters(given: Mapping[str, str], action: str) -> dict[str, Any]:
    """Lists and maps from parameters such as ``Attribute.1.Name``."""
    tree: dict[str, Any] = {}
    for name, value in given.items():
        _put(tree, name.split("."), value)
    return _shaped(tree, _TAGS_OF_CREATE if action == "CreateQueue" else {})


def _put(tree: dict[str, Any], path: Sequence[str], value: str) -> None:
    if len(path) > _DEPTH_MAX:
        raise SqsError("SerializationException", "A name of a parameter has too many parts")
    *parents, last = path
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise SqsError("SerializationException", f"The parameter {'.'.join(path)} contradicts another one")
    if isinstance(tree.get(last), dict):
        raise SqsError("SerializationException", f"The parameter {'.'.join(path)} contradicts another one")
    tree[last] = value


def _shaped(tree: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if name in _LISTS:
            found[_LISTS[name]] = [_inner(each) for each in _numbered(value)]
        elif name in _MAPS and not isinstance(value, str):
            member, key, content = _MAPS[name]
            found[renamed.get(name, member)] = dict(_entry(each, key, content) for each in _numbered(value))
        elif value == "" and name in _EMPTY:
            found[name] = []
        else:
            found[name] = _inner(value)
    return found


def _inner(value: Any) -> Any:  # noqa: ANN401 - a text or a tree
    return value if isinstance(value, str) else _shaped(value, {})


def _entry(entry: Any, key: str, content: str) -> tuple[str, Any]:  # noqa: ANN401
    if isinstance(entry, str) or not isinstance(entry.get(key), str):
        raise SqsError("MissingRequiredParameterException", f"The request must contain the parameter {key}.")
    # A tag without a value is an empty one.
    return entry[key], _inner(entry.get(content, ""))


def _numbered(value: Any) -> Iterator[Any]:  # noqa: ANN401
    """The elements of a list in the order of their numbers; without numbers it is a single one."""
    if isinstance(value, str) or not all(_NUMBER.fullmatch(part) for part in value):
        return iter([value])
    return iter([value[number] for number in sorted(value, key=int)])


def answer(action: str, result: Mapping[str, Any] | None, request_id: str) -> bytes:
    """The answer to an action in XML; ``None``: it has no result."""
    body = "" if result is None else _element(f"{action}Result", _members(action, result))
    metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    return _document(f"{action}Response", body + metadata)


def error(problem: SqsError, request_id: str) -> bytes:
    """An error in XML."""
    kind = problem.kind
    message = NOT_XML.sub("?", str(problem))
    if kind.name == "QueueDoesNotExist":
        message = "The specified queue does not exist for this wsdl version."
    body = (
        f"<Error><Type>{'Sender' if kind.sender else 'Receiver'}</Type><Code>{kind.code}</Code>"
        f"<Message>{_escape(message)}</Message><Detail/></Error><RequestId>{request_id}</RequestId>"
    )
    return _document("ErrorResponse", body)


def _document(name: str, body: str) -> bytes:
    return f'<?xml version="1.0"?><{name} xmlns="{_NAMESPACE}">{body}</{name}>'.encode()


def _members(action: str, members: Mapping[str, Any]) -> str:
    return "".join([_member(action, name, value) for name, value in members.items()])


def _member(action: str, name: str, value: Any) -> str:  # noqa: ANN401 - any member of an answer
    if isinstance(value, Mapping):
        if name not in _ENTRIES:
            return _element(name, _members(action, value))
        entry, key = _ENTRIES[name]
        return "".join(
            [
                _element(entry, _element(key, _escape(each)) + _member(action, "Value", content))
                for each, content in value.items()
            ]
        )
    if isinstance(value, list):
        element = _ELEMENTS.get(name, f"{action}ResultEntry")
        return "".join([_member(action, element, each) for each in value])
    return _element(name, _text(value))


def _element(name: str, content: str) -> str:
    return f"<{name}>{content}</{name}>" if content else f"<{name}/>"


def _text(value: Any) -> str:  # noqa: ANN401 - a scalar
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return _escape(str(value))


def _escape(text: str) -> str:
    return text.translate(_ESCAPED)
