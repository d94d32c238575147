"""``queen ack``: says what became of messages."""

import json as standard_json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.connection import DEFAULT_URL, FailedError, Server, UsageError, connected
from queen.cli.client.options import ForGroup, Json, Token, Url
from queen.cli.client.showing import clean, counted
from queen.cli.output import err, even_unread
from queen.cli.progress import bar

_BATCH = 1000


class Delivered(Struct, rename="camel"):
    """What an ack takes of a message that was delivered."""

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
    """What became of an item, as far as it is shown."""

    transaction_id: str
    success: bool
    error: str | None = None
    dlq: bool = False


def ack(
    partition_id: Annotated[
        str | None, typer.Argument(help="As `queen pop` shows it; without it messages are read.", show_default=False)
    ] = None,
    transaction_ids: Annotated[
        list[str] | None, typer.Argument(help="Those of the messages, or message ids.", show_default=False)
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Again later; after the retry limit a dead letter.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Again at once; counts no failure.")] = False,
    dlq: Annotated[bool, typer.Option("--dlq", help="A dead letter now.")] = False,
    error: Annotated[
        str | None, typer.Option(help="Why it failed; kept with the dead letter.", show_default=False)
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="Refuse it if this lease is over.", show_default="that of messages read")
    ] = None,
    group: ForGroup = None,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Say what became of messages: done, unless an option says otherwise.

    Without arguments messages are read from standard input, as `queen pop --json` prints them. Those that the server
    could not decrypt are never acked as done: say --failed, --retry or --dlq.
    """
    with connected(url, token) as server:
        chosen = [name for name, wanted in (("failed", failed), ("retry", retry), ("dlq", dlq)) if wanted]
        if len(chosen) > 1:
            raise UsageError(f"only one of {', '.join(f'--{name}' for name in chosen)} can be meant")
        if error is not None and not chosen:
            raise UsageError("--error says why: it goes with --failed, --retry or --dlq")
        status = chosen[0] if chosen else "completed"
        messages = _named(partition_id, transaction_ids or []) if partition_id is not None else _read()
        if lease is not None or group is not None:
            messages = [_with(each, lease, group) for each in messages]
        done = messages if chosen else _readable(messages)
        _finish(_acknowledge(server, done, status, error), skipped=len(messages) - len(done), json=json)


def _named(partition_id: str, transaction_ids: Sequence[str]) -> list[Delivered]:
    if not transaction_ids:
        raise UsageError("a partition id needs the transaction ids of messages behind it")
    return [Delivered(each, partition_id) for each in transaction_ids]


def _with(message: Delivered, lease: str | None, group: str | None) -> Delivered:
    return msgspec.structs.replace(
        message,
        lease_id=message.lease_id if lease is None else lease,
        consumer_group=message.consumer_group if group is None else group,
    )


def _readable(messages: Sequence[Delivered]) -> list[Delivered]:
    """Those whose payload was delivered. Nobody has done the others: they stay under their lease, and are told."""
    for each in messages:
        if each.error_code:
            why = f"not acked, because it was delivered without its payload ({each.error_code})"
            with even_unread():
                err.print(clean(f"{each.transaction_id}: {why}"), style="red", markup=False)
    return [each for each in messages if not each.error_code]


def _read() -> list[Delivered]:
    if sys.stdin.isatty():
        raise UsageError("what is to be acked? Name a partition id and transaction ids, or pipe `queen pop --json` in")
    try:
        text = sys.stdin.buffer.read().decode()
        return [msgspec.convert(each, Delivered) for each in _values(text)]
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"standard input holds no messages as `queen pop --json` prints them: {problem}") from None


def _values(text: str) -> Iterator[Any]:
    """JSON values behind each other, whatever stands between them; those of an array one by one."""
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
        advice = "--failed, --retry or --dlq says what becomes of them"
        problems.append(f"{counted(skipped, 'message')} that could not be decrypted not acked: {advice}")
    if problems:
        raise FailedError("; ".join(problems))
