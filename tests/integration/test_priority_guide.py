"""docs/priority.md as it stands: its commands, and what it says of their answers."""

import asyncio

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.guides import code, request_of
from tests.support.processes import ROOT

QUEUES = ("mail.urgent", "mail.normal", "mail.bulk")


@checks("G-POP-4", level=Level.LIVE)
async def test_the_guide_works(api: Api) -> None:
    lines = [line for block in code(ROOT / "docs" / "priority.md", "sh") for line in block.splitlines()]
    try:
        for line in lines:
            method, path, body = request_of(line)
            response = await api.http.request(method, path, content=body)
            assert response.is_success, (line, response.text)
            told = line.partition("# ")[2]
            if told:
                assert [message["data"] for message in response.json()["messages"]] == told.split(", "), line
        poll = asyncio.ensure_future(api.pop_label(namespace="mail", wait=True, timeout=60_000))
        await api.push("mail.urgent", "later", partition="c")
        assert (await poll).data == ["later"]
    finally:
        for queue in QUEUES:
            await api.delete(queue)
