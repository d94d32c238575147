"""The dashboard over several databases: their states, homes of partitions, and what it says while one is down."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenScreen, Producer
from tests.support.outage import FragilePostgres, fragile_postgres
from tests.support.processes import Server, open_folder
from tests.support.shards import new_databases, serving_shards


@pytest.fixture
def place(postgres: str) -> Iterator[tuple[Server, FragilePostgres]]:
    """A server over three databases, and the PostgreSQL of ``b``."""
    with open_folder() as folder, ThreadPoolExecutor(1) as beside, ExitStack() as stack:
        # The browser runs in the event loop of this thread.
        fragile = stack.enter_context(fragile_postgres(folder / "b"))
        others = new_databases(postgres, ("a", "c"))
        made = beside.submit(others.__enter__).result()
        stack.callback(lambda: beside.submit(others.__exit__, None, None, None).result())
        databases = {"a": made["a"], "b": fragile.dsn, "c": made["c"]}
        yield stack.enter_context(serving_shards(databases, folder / "server")), fragile


def test_databases_are_shown_with_their_states(place: tuple[Server, FragilePostgres], open_screen: OpenScreen) -> None:
    server, fragile = place
    producer, screen = Producer(server), open_screen(server)
    [message] = producer.push("q", 1, partition="p@b", transactionId="one")
    producer.push("q", 2, partition="p@c")
    screen.open("queues", "q", title="q")
    expect(screen.row("p@b")).to_contain_text("in b")
    expect(screen.row("p@c")).to_contain_text("in c")
    screen.open("messages", str(message["partition_id"]), "one")
    expect(screen.page.locator(".facts", has_text="Message id")).to_contain_text("Databaseb")
    screen.open("system", title="System")
    databases = screen.page.get_by_role("region", name="Databases")
    for name in ("a", "b", "c"):
        row = databases.get_by_role("row").filter(has=screen.page.get_by_role("cell", name=name, exact=True))
        expect(row).to_contain_text("available")
        expect(row).to_contain_text("version 1")
    assert screen.fits()
    fragile.kill()
    row = databases.get_by_role("row").filter(has=screen.page.get_by_role("cell", name="b", exact=True))
    expect(row).to_contain_text("unavailable")
    expect(screen.page.locator(".bar .badge")).to_have_text("Database b unavailable")
    expect(screen.page.get_by_role("alert")).to_contain_text("Database b is unavailable. This page has figures of all")
    producer.push("q", 3, partition="p@b")
    expect(row.get_by_role("cell").nth(2)).to_have_text("1")
    fragile.start()
    expect(screen.page.locator(".bar .badge")).to_have_text("Healthy")
    expect(row.get_by_role("cell").nth(2)).to_have_text("0")
