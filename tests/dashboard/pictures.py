"""`python -m tests.dashboard.pictures`: the pictures in docs/dashboard.md, from an hour of real load at a low rate.

The charts show one hour, so the load runs for a little longer than that before the pictures are taken, and goes on
meanwhile. Nothing in them is made up: all numbers come from the server's own statistics.
"""

import argparse
import asyncio
import os
import random
import re
from pathlib import Path

import httpx
from playwright.async_api import Browser, async_playwright, expect

from tests.dashboard.browser import ensure_browser
from tests.support.processes import ROOT, open_folder, serving

_MINUTES = 62
_HEIGHT = 860
#: Messages per second, partitions, and groups of each queue; a group: seconds between its pops, and how many fail.
_QUEUES = {
    "orders": (4.0, 6, {"billing": (0.2, 0.0), "shipping": (0.3, 0.0)}),
    "emails": (3.0, 6, {"mailer": (0.4, 0.01)}),
    "invoices": (2.0, 5, {"printing": (0.5, 0.002)}),
    "audit-log": (3.0, 1, {"archive": (15.0, 0.0)}),
}
_BATCH = 100


async def _produce(http: httpx.AsyncClient, chance: random.Random) -> None:
    """Pushes about once per second; the rate wanders between half and one and a half of each queue's own."""
    pace, number = 1.0, 0
    while True:
        pace = min(1.5, max(0.5, pace + chance.uniform(-0.05, 0.05)))
        items = []
        for queue, (rate, partitions, _) in _QUEUES.items():
            for _ in range(sum(chance.random() < rate * pace / 20 for _ in range(20))):
                number += 1
                place = {"queue": queue, "partition": f"customer-{chance.randrange(partitions)}"}
                items.append({**place, "payload": {"number": number}})
        if items:
            (await http.post("/api/v1/push", json={"items": items})).raise_for_status()
        # The rate of the load, not a wait for something.
        await asyncio.sleep(chance.uniform(0.8, 1.2))


async def _consume(http: httpx.AsyncClient, chance: random.Random, queue: str, group: str) -> None:
    pause_s, failing = _QUEUES[queue][2][group]
    query = {"consumerGroup": group, "batch": _BATCH, "wait": "true", "timeout": 10_000, "subscriptionMode": "all"}
    while True:
        answer = await http.get(f"/api/v1/pop/queue/{queue}", params=query)
        answer.raise_for_status()
        if answer.status_code == httpx.codes.NO_CONTENT:
            continue
        # The consumer's work: for so long the messages are in flight.
        await asyncio.sleep(pause_s * chance.uniform(0.5, 1.5))
        acks = [
            {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
            | _outcome(message["data"]["number"], failing)
            for message in answer.json()["messages"]
        ]
        (
            await http.post("/api/v1/ack/batch", json={"consumerGroup": group, "acknowledgments": acks})
        ).raise_for_status()


def _outcome(number: int, failing: float) -> dict[str, str]:
    """The same for each delivery of a message, so that one that fails becomes a dead letter."""
    if random.Random(number).random() < failing:
        return {"status": "failed", "error": "550 mailbox unavailable"}
    return {"status": "completed"}


async def _load(url: str) -> None:
    chance = random.Random(0)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.TaskGroup() as tasks:
        for queue in _QUEUES:
            options = {"retryLimit": 2, "leaseTime": 60}
            (await http.post("/api/v1/configure", json={"queue": queue, "options": options})).raise_for_status()
        tasks.create_task(_produce(http, chance))
        for queue, (_, _, groups) in _QUEUES.items():
            for group in groups:
                tasks.create_task(_consume(http, chance, queue, group))


async def _take(
    browser: Browser, address: str, title: str, chart: str, path: Path, width: int = 1280, scheme: str = "light"
) -> None:
    page = await browser.new_page(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
    await page.goto(address)
    await expect(page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
    # A chart with data says so in its name.
    await expect(page.get_by_role("img", name=re.compile(f"^{chart}"))).to_be_visible()
    await page.screenshot(path=path)
    await page.close()


async def _pictures(url: str, folder: Path) -> None:
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=ensure_browser(), args=options)
        rates = r"Messages per second\. Pushed"
        await _take(browser, f"{url}/#/", "Overview", rates, folder / "dashboard-overview.png")
        await _take(browser, f"{url}/#/queues/orders", "orders", rates, folder / "dashboard-queue.png", 390, "dark")
        await _take(browser, f"{url}/#/system", "System", "CPU of all workers.* User", folder / "dashboard-system.png")
        await browser.close()


async def _run(url: str, minutes: float, folder: Path) -> None:
    load = asyncio.create_task(_load(url))
    # The time that the charts show, not a wait for something. It ends early if the load fails.
    done, _ = await asyncio.wait({load}, timeout=minutes * 60)
    if done:
        load.result()
    await _pictures(url, folder)
    load.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=_MINUTES)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    with open_folder() as data, serving(data / "data", "--workers", "1") as server:
        asyncio.run(_run(f"http://127.0.0.1:{server.port}", arguments.minutes, arguments.folder))
