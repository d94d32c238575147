"""Servers, and a browser in front of them, as wide as a desk or as a telephone."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

from tests.dashboard.browser import NoBrowserError, ensure_browser
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.tokens import SECRET

WIDTHS = (1280, 390)
_HEIGHT = 860
_PATIENCE_MS = 60_000
#: What Chromium says of an answer that is an error. A busy PostgreSQL may be down for a moment; a queue may be unknown.
_REFUSED = re.compile(r"Failed to load resource.*status of (401|404|503)")
#: Likewise of actions of SQS, which has its own statuses.
_REFUSED_BY_SQS = re.compile(r"Failed to load resource.*status of (400|403)")

# Not wait_for_function: the policy of the page forbids the eval() that it polls with.
_FITS = """timeout => new Promise(resolve => {
    const end = performance.now() + timeout;
    const fits = () =>
        [document.documentElement, ...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth);
    const check = () => (fits() || performance.now() > end ? resolve(fits()) : requestAnimationFrame(check));
    check();
})"""

expect.set_options(timeout=_PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        program = ensure_browser()
    except NoBrowserError as error:
        pytest.skip(str(error))
    # Chromium's sandbox does not work for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server without authentication."""
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as running:
        yield running


@pytest.fixture(scope="session")
def guarded() -> Iterator[Server]:
    """A server that does."""
    environment = clean_environment(JWT_ENABLED="true", JWT_ALGORITHM="HS256", JWT_SECRET=SECRET)
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as running:
        yield running


@dataclass
class Screen:
    """The dashboard in a window, and what the browser complained about."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(_PATIENCE_MS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or _REFUSED.search(message.text):
            return
        if not (_REFUSED_BY_SQS.search(message.text) and message.location["url"].endswith("/sqs")):
            self.complaints.append(message.text)

    def open(self, *path: str, title: str | None = None) -> None:
        """Opens a page of the dashboard; its names are encoded as the dashboard does it."""
        self.page.goto(f"{self.url}/#/{'/'.join(quote(part, safe='') for part in path)}")
        if title:
            expect(self.page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def row(self, text: str) -> Locator:
        """The row of a table that holds the text."""
        return self.page.get_by_role("row").filter(has_text=text)

    def answer(self, action: str, **fields: str) -> None:
        """Fills in the dialog that is open, and goes on."""
        dialog = self.page.get_by_role("dialog")
        for label, text in fields.items():
            dialog.locator(f"[name={label}]").fill(text)
        dialog.get_by_role("button", name=action, exact=True).click()
        expect(dialog).to_have_count(0)

    def says(self, text: str) -> None:
        """A notice with the text is there."""
        expect(self.page.get_by_role("status").filter(has_text=text)).to_be_visible()

    def fits(self) -> bool:
        """Waits until nothing is wider than the window or its place; false if that does not happen."""
        return bool(self.page.evaluate(_FITS, _PATIENCE_MS))


OpenScreen = Callable[..., Screen]


@pytest.fixture
def open_screen(browser: Browser) -> Iterator[OpenScreen]:
    """Opens windows; none of them may complain."""
    contexts: list[BrowserContext] = []
    screens: list[Screen] = []

    def opened(server: Server, width: int = WIDTHS[0], **options: Any) -> Screen:
        context = browser.new_context(viewport={"width": width, "height": _HEIGHT}, **options)
        contexts.append(context)
        screens.append(Screen(context.new_page(), f"http://127.0.0.1:{server.port}"))
        return screens[-1]

    yield opened
    for context in contexts:
        # An answer that a test stands in for may be on its way.
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert [each.complaints for each in screens if each.complaints] == []


@pytest.fixture(params=WIDTHS)
def screen(request: pytest.FixtureRequest, open_screen: OpenScreen, server: Server) -> Screen:
    """A window as wide as a desk or as a telephone."""
    return open_screen(server, request.param)


@pytest.fixture
def queue() -> str:
    """A name that nobody else uses."""
    return f"orders-{uuid4().hex[:8]}"


@dataclass
class Producer:
    """What the tests do past the dashboard."""

    server: Server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.server.request(method, path, body)
        assert status < 300, (status, answer)
        return answer

    def push(self, queue: str, *payloads: Any, partition: str = "alice", **fields: str) -> list[Any]:
        items = [{"queue": queue, "partition": partition, "payload": payload, **fields} for payload in payloads]
        return list(self.call("POST", "/api/v1/push", {"items": items}))

    def pop(self, queue: str, group: str, batch: int = 10) -> list[Any]:
        path = f"/api/v1/pop/queue/{quote(queue, safe='')}?consumerGroup={quote(group, safe='')}&batch={batch}"
        return list(self.call("GET", path)["messages"])

    def ack(self, message: Any, group: str, status: str = "completed", error: str | None = None) -> None:
        own = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        self.call("POST", "/api/v1/ack", {**own, "consumerGroup": group, "status": status, "error": error})

    def trace(self, message: Any, event: str, *names: str) -> None:
        own = {name: message[name] for name in ("transactionId", "partitionId")}
        self.call("POST", "/api/v1/traces", {**own, "eventType": event, "data": {"event": event}, "traceNames": names})


@pytest.fixture
def producer(server: Server) -> Producer:
    return Producer(server)


@pytest.fixture(scope="session")
def keyless() -> Iterator[Server]:
    """A server that has lost its key: it can read neither message of the queue `secret`, of which `dead` is dead."""
    with open_folder() as folder:
        place = folder / "data"
        with serving(place, "--workers", "1", env=clean_environment(QUEEN_ENCRYPTION_KEY="11" * 32)) as before:
            producer = Producer(before)
            producer.call("POST", "/api/v1/configure", {"queue": "secret", "options": {"encryptionEnabled": True}})
            producer.push("secret", {"card": 1}, transactionId="dead")
            for message in producer.pop("secret", "g"):
                producer.ack(message, "g", "dlq", "no")
            producer.push("secret", {"card": 2}, transactionId="alive")
        with serving(place, "--workers", "1", env=clean_environment(QUEEN_ENCRYPTION_KEY="22" * 32)) as running:
            yield running
