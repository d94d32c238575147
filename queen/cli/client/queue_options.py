"""The options of a queue as options of a command: one for each, named as in the HTTP interface."""

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

#: The options that are given, by their names in the HTTP interface.
Options = Mapping[str, Any]

_NUMBERS = {
    "leaseTime": "Lease time in seconds.",
    "retryLimit": "Failures of a message before it becomes a dead letter.",
    "retryDelay": "Delay before a failed message is delivered again, in milliseconds.",
    "delayedProcessing": "Delay before a message is delivered, in seconds.",
    "windowBuffer": "Seconds without a push to a partition before its messages are delivered.",
    "priority": "Order among queues of a namespace or task, highest first.",
    "retentionSeconds": "Age at which messages are removed, with --retention-enabled; 0: never.",
    "completedRetentionSeconds": "Age at which messages are removed that every group has acknowledged; 0: never.",
    "maxWaitTimeSeconds": "Age at which unacknowledged messages are evicted; 0: never.",
    "maxSize": "Maximum backlog; a push beyond it is refused. 0: unlimited.",
    "ttl": "Age in seconds at which messages are removed, acknowledged or not; 0: never.",
}
_SWITCHES = {
    "deadLetterQueue": "Whether dead letters are stored.",
    "retentionEnabled": "Whether --retention-seconds applies.",
    "encryptionEnabled": "Whether payloads are encrypted in the database.",
    "sqlPush": "Whether queen.push, in SQL, may push to the queue.",
}
_TEXTS = {
    "namespace": "Label by which queues can be listed and popped.",
    "task": "A second label of this kind.",
    "colocateWith": "Queue whose partitions of the same names are in the same database, of several.",
}
_ALL: Mapping[type, Mapping[str, str]] = {int: _NUMBERS, bool: _SWITCHES, str: _TEXTS}


def _words(name: str, joint: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: joint + letter.group().lower(), name)


def _annotation(kind: type, name: str, text: str) -> Any:  # noqa: ANN401 - a type made at run time
    word = f"--{_words(name, '-')}"
    spelt = f"{word}/--no-{_words(name, '-')}" if kind is bool else word
    # Type checkers do not know it.
    given: Any = kind | None
    return Annotated[given, typer.Option(spelt, help=text, show_default=False)]


_PARAMETERS = {
    _words(name, "_"): (name, _annotation(kind, name, text)) for kind, of in _ALL.items() for name, text in of.items()
}


def with_options(work: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``options`` has the options of a queue that are given on its command line."""
    own = [each for each in signature(work).parameters.values() if each.name != "options"]
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, (_, annotation) in _PARAMETERS.items()
    ]

    def command(server: Any, **given: Any) -> None:  # noqa: ANN401 - options of any type
        options = {field: given.pop(name) for name, (field, _) in _PARAMETERS.items()}
        work(server, options={field: value for field, value in options.items() if value is not None}, **given)

    command.__name__, command.__doc__ = work.__name__, work.__doc__
    command.__signature__ = signature(work).replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return command
