"""The pages about queues of SQS, in a real browser, at both widths."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenScreen, Screen
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.sqs_clients import KEY, SECRET, receive, sqs_client
from tests.support.tokens import token


@pytest.fixture
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"orders-{uuid4().hex[:8]}"


def made(sqs: Any, name: str, **attributes: str) -> str:
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def arn(sqs: Any, url: str) -> str:
    found: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return found


def test_a_queue_is_made_found_configured_and_deleted(screen: Screen, sqs: Any, name: str) -> None:
    made(sqs, f"{name}-dead")
    screen.open("sqs", title="SQS queues")
    screen.button("New queue").click()
    screen.answer("Create", queue=f"{name}.fifo", VisibilityTimeout="90")
    screen.says(f"Queue {name}.fifo created")
    screen.button("New queue").click()
    screen.answer("Create", queue=name, dead=f"{name}-dead", receives="2")
    screen.page.get_by_label("Search").fill(name)
    expect(screen.page.get_by_role("row")).to_have_count(4)
    assert screen.fits()
    screen.page.get_by_role("link", name=f"{name}.fifo", exact=True).click()
    expect(screen.page.locator(".facts").last).to_contain_text("FIFO")
    expect(screen.page.locator(".facts").last).to_contain_text("1 min 30 s")
    screen.button("Change attributes").click()
    screen.answer("Save", VisibilityTimeout="7200")
    expect(screen.page.locator(".facts").last).to_contain_text("2 h")
    screen.button("Delete queue").click()
    screen.answer("Delete queue", typed=f"{name}.fifo")
    screen.says(f"Queue {name}.fifo deleted")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("SQS queues")
    screen.open("sqs", name, title=name)
    expect(screen.page.locator(".facts").last).to_contain_text(f"{name}-dead after 2 receives")
    screen.open("sqs", f"{name}.fifo")
    expect(screen.page.get_by_text("There is no queue of SQS of this name.")).to_be_visible()


def test_messages_are_shown_sent_and_purged(screen: Screen, sqs: Any, name: str) -> None:
    url = made(sqs, name, VisibilityTimeout="43200")
    attributes = {"kind": {"DataType": "String", "StringValue": "green tea"}}
    sqs.send_message(QueueUrl=url, MessageBody="taken")
    sqs.send_message(QueueUrl=url, MessageBody="<b>" + "long " * 60, MessageAttributes=attributes)
    sqs.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=900)
    assert len(receive(sqs, url, 1)) == 1
    screen.open("sqs", name, title=name)
    expect(screen.row("taken")).to_contain_text("in flight")
    expect(screen.row("late")).to_contain_text("delayed")
    screen.row("<b>long").locator("summary").click()
    expect(screen.page.get_by_label("Body", exact=True)).to_contain_text("<b>" + "long " * 60)
    expect(screen.row("<b>long")).to_contain_text("green tea")
    assert screen.fits()
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=f"more {number}")
    screen.button("Send a message").click()
    screen.answer("Send", body="by hand")
    screen.says("Message sent")
    screen.button("Next").last.click()
    expect(screen.row("by hand")).to_contain_text("visible")
    expect(screen.row("taken")).to_have_count(0)
    screen.button("First page").last.click()
    expect(screen.row("taken")).to_have_count(1)
    # Nothing was received by looking.
    assert len(receive(sqs, url, 10)) == 10
    screen.button("Purge").click()
    expect(screen.page.get_by_role("dialog").get_by_role("button", name="Purge")).to_be_disabled()
    screen.answer("Purge", typed=name)
    screen.says(f"Queue {name} purged")
    expect(screen.page.get_by_text("No messages", exact=True)).to_be_visible()
    screen.button("Purge").click()
    screen.page.get_by_role("dialog").locator("[name=typed]").fill(name)
    screen.page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(screen.page.get_by_role("alert")).to_contain_text("Only one PurgeQueue operation")


def test_dead_letters_are_moved_back(screen: Screen, sqs: Any, name: str) -> None:
    dead = made(sqs, f"{name}-dead")
    policy = json.dumps({"deadLetterTargetArn": arn(sqs, dead), "maxReceiveCount": 1})
    url = made(sqs, name, VisibilityTimeout="0", RedrivePolicy=policy)
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    for _ in range(2):
        receive(sqs, url)
    screen.open("sqs", f"{name}-dead", title=f"{name}-dead")
    screen.button("Move dead letters").click()
    screen.answer("Start", perSecond="1")
    screen.says("The move has started")
    screen.button("Cancel").click()
    screen.answer("Cancel move")
    expect(screen.row("where they came from")).to_contain_text("cancelled")
    assert screen.fits()
    screen.button("Move dead letters").click()
    screen.answer("Start")
    expect(screen.page.get_by_role("row").filter(has_text="completed")).to_have_count(1)
    expect(screen.page.get_by_text("No messages", exact=True)).to_be_visible()


def test_a_message_of_a_fifo_queue_is_sent_with_its_group(screen: Screen, sqs: Any, name: str) -> None:
    url = made(sqs, f"{name}.fifo", FifoQueue="true")
    screen.open("sqs", f"{name}.fifo", title=f"{name}.fifo")
    for body in ("one", "two"):
        screen.button("Send a message").click()
        screen.answer("Send", body=body, group="alice")
    expect(screen.row("two")).to_contain_text("behind another of its group")
    assert [message["Body"] for message in receive(sqs, url)] == ["one", "two"]


def test_a_reader_sees_queues_and_no_actions(open_screen: OpenScreen, guarded: Server, name: str) -> None:
    headers = {"Authorization": f"Bearer {token('admin')}", "X-Amz-Target": "AmazonSQS.CreateQueue"}
    httpx.post(f"http://127.0.0.1:{guarded.port}/sqs", headers=headers, json={"QueueName": name}).raise_for_status()
    screen = open_screen(guarded)
    screen.open("overview")
    screen.page.get_by_label("Token").fill(token("read-only"))
    screen.button("Sign in").click()
    screen.open("sqs", name, title=name)
    expect(screen.page.locator(".facts").last).to_contain_text("standard")
    for action in ("Send a message", "Purge", "Delete queue", "Change attributes"):
        expect(screen.button(action)).to_have_count(0)


def test_queues_that_access_keys_protect_say_so(open_screen: OpenScreen) -> None:
    environment = clean_environment(QUEEN_SQS_KEYS=f"{KEY}:{SECRET}:admin")
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as running:
        screen = open_screen(running)
        screen.open("sqs", title="SQS queues")
        expect(screen.page.get_by_role("alert")).to_contain_text("Access keys protect the queues of SQS")
        screen.page.close()
