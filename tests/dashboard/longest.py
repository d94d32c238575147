"""`python -m tests.dashboard.longest`: the longest task of the browser on every page, with many of everything.

The figures of ADR 62: 1,006 queues, 10,000 partitions of one of them, a backlog of 200,000 messages, and 1,300 dead
letters. Each page is loaded and refreshes itself twice. Only the figures of a quiet machine say something.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.dashboard.browser import ensure_browser
from tests.support.processes import Server, open_folder, serving
from tests.support.sqs_clients import sqs_client

_QUEUES = 1_004
_PARTITIONS = 10_000
_EACH = 20
_FINISHED = 3_920
_DEAD = 1_300
_ERRORS = (
    "550 mailbox unavailable",
    "timeout after 30 s",
    "ValueError: no money",
    "connection reset",
    "KeyError: 'id'",
)
_LOADS = 5
#: Long enough for a load, and for two refreshes.
_LOAD_MS, _REFRESHES_MS = 3_500, 11_000

_OBSERVE = """
window.tasks = [];
window.changes = 0;
new PerformanceObserver(list => list.getEntries().forEach(each => window.tasks.push([each.startTime, each.duration])))
    .observe({ type: "longtask", buffered: true });
document.addEventListener("DOMContentLoaded", () =>
    new MutationObserver(list => { window.changes += list.length; })
        .observe(document.body, { childList: true, subtree: true, characterData: true }));
"""


def _call(server: Server, method: str, path: str, body: Any = None) -> Any:
    status, answer = server.request(method, path, body)
    assert status < 300, (status, answer)
    return answer


def fill(server: Server) -> dict[str, str]:
    """Makes the data with requests; the addresses of the pages, by their names."""
    for number in range(_QUEUES):
        _call(server, "POST", "/api/v1/configure", {"queue": f"team-{number % 40}.queue-{number:04}"})
    names = [f"customer-{number:05}" for number in range(_PARTITIONS)]
    for _ in range(_EACH):
        for first in range(0, _PARTITIONS, 2_500):
            items = [
                {"queue": "orders", "partition": name, "payload": {"number": number, "item": "tea"}}
                for number, name in enumerate(names[first : first + 2_500])
            ]
            _call(server, "POST", "/api/v1/push", {"items": items})
    finished = 0
    while finished < _FINISHED * _EACH:
        path = "/api/v1/pop/queue/orders?consumerGroup=billing&batch=10000&partitions=500&autoAck=true"
        finished += len(_call(server, "GET", path)["messages"])
    items = [{"queue": "emails", "partition": f"p{n % 40}", "payload": {"number": n}} for n in range(_DEAD)]
    _call(server, "POST", "/api/v1/push", {"items": items})
    _give_up(server)
    message = _call(server, "GET", "/api/v1/messages?queue=orders&limit=1")["messages"][0]
    own = {name: message[name] for name in ("transactionId", "partitionId")}
    for number in range(200):
        names = ["checkout", f"customer {number}"]
        trace = {**own, "eventType": "priced", "data": {"step": number}, "traceNames": names}
        _call(server, "POST", "/api/v1/traces", trace)
    sqs = sqs_client(server.port)
    for number in range(200):
        url = sqs.create_queue(QueueName=f"thumbnails-{number}")["QueueUrl"]
    for number in range(100):
        sqs.send_message(QueueUrl=url, MessageBody=f"picture {number}")
    return {
        "overview": "",
        "queues": "queues",
        "a queue": "queues/orders",
        "messages": "messages",
        "messages of a queue": "messages?queue=orders",
        "a message": f"messages/{message['partitionId']}/{quote(message['transactionId'])}",
        "dead letters": "dead-letters",
        "dead letters of a queue": "dead-letters?queue=emails",
        "groups": "groups",
        "a group": "groups/billing",
        "traces": "traces",
        "a trace": "traces/checkout",
        "SQS queues": "sqs",
        "a queue of SQS": "sqs/thumbnails-199",
        "system": "system",
        "maintenance": "maintenance",
    }


def _give_up(server: Server) -> None:
    given_up = 0
    while given_up < _DEAD:
        path = "/api/v1/pop/queue/emails?consumerGroup=mailer&batch=1000&partitions=40"
        messages = _call(server, "GET", path)["messages"]
        acks = [
            {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
            | {"status": "dlq", "error": _ERRORS[message["data"]["number"] % len(_ERRORS)]}
            for message in messages
        ]
        _call(server, "POST", "/api/v1/ack/batch", {"consumerGroup": "mailer", "acknowledgments": acks})
        given_up += len(acks)


@contextmanager
def _browser() -> Iterator[Browser]:
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure_browser(), args=options)
        yield browser
        browser.close()


def look(browser: Browser, address: str) -> str:
    """A row of the table: nodes, the longest task of each of the loads and of two refreshes, and what these change."""
    loads = []
    for number in range(_LOADS):
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.add_init_script(_OBSERVE)
        page.goto(address)
        expect(page.locator(".loading")).to_be_hidden(timeout=60_000)
        page.wait_for_timeout(_LOAD_MS - page.evaluate("performance.now()"))
        loads.append(_longest(page))
        if number + 1 < _LOADS:
            page.close()
    page.evaluate("window.tasks.length = window.changes = 0")
    page.wait_for_timeout(_REFRESHES_MS)
    nodes, changes = page.evaluate("[document.querySelectorAll('*').length, window.changes]")
    refreshes = _longest(page)
    page.close()
    return f"{nodes:,} | {_said(sorted(loads)[_LOADS // 2])}, {_said(max(loads))} | {_said(refreshes)} | {changes}"


def _longest(page: Page) -> float:
    return float(page.evaluate("Math.max(0, ...window.tasks.map(each => each[1]))"))


def _said(milliseconds: float) -> str:
    # Chromium reports no shorter ones.
    return f"{milliseconds:.0f} ms" if milliseconds else "below 50 ms"


def _table(url: str, addresses: dict[str, str]) -> None:
    print("| page | nodes | longest task of a load: median, most | of two refreshes | changes of the tree by them |")
    print("|---|---|---|---|---|")
    with _browser() as browser:
        for name, path in addresses.items():
            print(f"| {name} | {look(browser, f'{url}/#/{path}')} |", flush=True)


if __name__ == "__main__":
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        _table(f"http://127.0.0.1:{server.port}", fill(server))
