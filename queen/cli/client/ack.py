"""``queen ack``: acknowledges messages."""

import json as standard_json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.connection import Server
from queen.cli.client.options import ForGroup
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.errors import FailedError, UsageError
from queen.cli.output import Json, err, even_unread
from queen.cli.progress import bar

_BATCH = 1000
_COMPLETED = "completed"


class Delivered(Struct, rename="camel"):
    """The fields of a delivered message that an ack needs."""

    transaction_id: str
    partition_id: str
    lease_id: str = ""
    consumer_group: str = ""
    error_code: str | None = None


class Acknowledgment(Struct, rename="camel", omit_defaults=True):
    """An item of an ack."""

    transaction_id: str
    partition_id: str
    status: str
    lease_id: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class Result(Struct, rename="camel"):
    """The result of an item, with the fields that are shown."""

    transaction_id: str
    success: bool
    error: str | None = None
    dlq: bool = False


@on_server
def ack(
    server: Server,
    partition_id: Annotated[
        str | None,
        typer.Argument(
            help="Partition id, from `queen pop`; without it messages are read from standard input.", show_default=False
        ),
    ] = None,
    transaction_ids: Annotated[
        list[str] | None, typer.Argument(help="Transaction ids or message ids.", show_default=False)
    ] = None,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Deliver it again after the retry delay; a dead letter after the retry limit."),
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Deliver it again at once, without counting a failure.")
    ] = False,
    dlq: Annotated[bool, typer.Option("--dlq", help="Make it a dead letter now.")] = False,
    error: Annotated[
        str | None, typer.Option(help="Error text; stored with the dead letter.", show_default=False)
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="Refuse the ack if this lease has expired.", show_default="that of messages read")
    ] = None,
    group: ForGroup = None,
    json: Json = False,
) -> None:
    """Acknowledge messages: as completed, unless an option says otherwise.

    Without arguments, messages are read from standard input, in the form of `queen pop --json`. Messages that the
    server could not decrypt are never acked as completed: use --failed, --retry or --dlq for them.
    """
    status = _status(error, failed=failed, retry=retry, dlq=dlq)
    messages = _named(partition_id, transaction_ids or []) if partition_id is not None else _read()
    if lease is not None or group is not None:
        messages = [_with(each, lease, group) for each in messages]
    done = _readable(messages) if status == _COMPLETED else messages
    _finish(_acknowledge(server, done, status, error), skipped=len(messages) - len(done), json=json)


def _status(error: str | None, **wanted: bool) -> str:
    """The one status that is wanted."""
    chosen = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(chosen) > 1:
        raise UsageError(f"give only one of {', '.join(f'--{name}' for name in chosen)}")
    if error is not None and not chosen:
        raise UsageError("--error needs --failed, --retry or --dlq")
    return chosen[0] if chosen else _COMPLETED


def _named(partition_id: str, transaction_ids: Sequence[str]) -> list[Delivered]:
    if not transaction_ids:
        raise UsageError("after a partition id, give the transaction ids of messages")
    return [Delivered(each, partition_id) for each in transaction_ids]


def _with(message: Delivered, lease: str | None, group: str | None) -> Delivered:
    return msgspec.structs.replace(
        message,
        lease_id=message.lease_id if lease is None else lease,
        consumer_group=message.consumer_group if group is None else group,
    )


def _readable(messages: Sequence[Delivered]) -> list[Delivered]:
    """Messages with a payload. The others stay leased, and a line about each is printed."""
    for each in messages:
        if each.error_code:
            why = f"not acked: it was delivered without its payload ({each.error_code})"
            with even_unread():
                err.print(clean(f"{each.transaction_id}: {why}"), style="red", markup=False)
    return [each for each in messages if not each.error_code]


def _read() -> list[Delivered]:
    if sys.stdin.isatty():
        raise UsageError(
            "nothing to acknowledge: give a partition id and transaction ids, or pipe the output of `queen pop "
            "--json` in"
        )
    try:
        text = sys.stdin.buffer.read().decode()
        return [msgspec.convert(each, Delivered) for each in _values(text)]
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"standard input does not have messages in the form of `queen pop --json`: {problem}"
        ) from None


def _values(text: str) -> Iterator[Any]:
    """A sequence of JSON values with any separators; arrays are flattened."""
    decoder, at = standard_json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield from value if isinstance(value, list) else [value]


def _acknowledge(server: Server, messages: Sequence[Delivered], status: str, error: str | None) -> list[Raw]:
    answers: list[Raw] = []
    with bar() as progress:
        task = progress.add_task("acking", total=len(messages))
        for group, run in groupby(messages, lambda each: each.consumer_group):
            members = list(run)
            for start in range(0, len(members), _BATCH):
                some = members[start : start + _BATCH]
                items = [
                    Acknowledgment(
                        each.transaction_id, each.partition_id, status, each.lease_id or UNSET,
                        UNSET if error is None else error,
                    )
                    for each in some
                ]  # fmt: skip
                body = {"acknowledgments": items, "consumerGroup": group}
                answers += server.post(list[Raw], "/api/v1/ack/batch", body)
                progress.update(task, advance=len(some))
    return answers


def _finish(answers: Sequence[Raw], *, skipped: int, json: bool) -> None:
    results = [msgspec.json.decode(each, type=Result) for each in answers]
    refused = [each for each in results if not each.success]
    with even_unread():
        if json:
            showing.document(answers)
        else:
            buried = sum(each.dlq for each in results)
            said = f", {counted(buried, 'dead letter')}" if buried else ""
            showing.say(f"{counted(len(results) - len(refused), 'message')} acked{said}")
            for each in refused:
                err.print(clean(f"{each.transaction_id}: {each.error}"), style="red", markup=False)
    problems = [f"{counted(len(refused), 'ack')} of {len(results)} refused"] if refused else []
    if skipped:
        advice = "use --failed, --retry or --dlq for them"
        problems.append(f"{counted(skipped, 'message')} that could not be decrypted not acked: {advice}")
    if problems:
        raise FailedError("; ".join(problems))
