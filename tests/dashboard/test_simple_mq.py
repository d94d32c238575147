"""The pages about queues of simple-mq, in a real browser, at both widths."""

from uuid import uuid4

from playwright.sync_api import expect

from tests.dashboard.conftest import Screen
from tests.support.processes import Server


def made(server: Server, name: str, *data: str) -> str:
    settings = {"queueName": name, "queueSize": 500, "visibilityTimeout": 0, "maxDeliveries": 1}
    queue: str = server.request("POST", "/api/queues", settings)[1]["queue_id"]
    for each in data:
        assert server.request("POST", f"/api/queues/{queue}/messages", {"data": each})[0] == 201
    return queue


def test_queues_are_found_looked_at_purged_and_deleted(server: Server, screen: Screen) -> None:
    name = f"mail-{uuid4().hex[:8]}"
    queue = made(server, name, "<b>" + "long " * 60, *(f"number {number}" for number in range(30)))
    for _ in range(2):  # the second poll finds a dead letter
        server.request("GET", f"/api/queues/{queue}/messages")
    screen.open("simple", title="simple-mq")
    screen.page.get_by_label("Search").fill(name)
    expect(screen.page.get_by_role("row")).to_have_count(3)
    expect(screen.row("of its source")).to_be_visible()
    assert screen.fits()
    screen.row("their queue").get_by_role("link", name="their queue").click()
    screen.row("<b>long").locator("summary").click()
    expect(screen.page.get_by_label("Message", exact=True)).to_contain_text("<b>" + "long " * 60)
    assert screen.fits()
    screen.open("simple", queue, title=queue)
    expect(screen.page.locator(".facts")).to_contain_text(name)
    expect(screen.row("number 0")).to_be_visible()
    screen.button("Next").click()
    expect(screen.row("number 29")).to_be_visible()
    screen.button("Purge").click()
    screen.answer("Purge", typed=name)
    screen.says(f"Queue {name} purged")
    screen.button("First page").click()
    expect(screen.page.get_by_text("No messages", exact=True)).to_be_visible()
    screen.button("Delete queue").click()
    screen.answer("Delete queue", typed=name)
    screen.says(f"Queue {name} deleted")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("simple-mq")
    screen.open("simple", queue)
    expect(screen.page.get_by_text("There is no queue of simple-mq with this id.")).to_be_visible()
