"""What each level of access sees and may do: tokens, hostile texts, use without a mouse and without eyes."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.dashboard.conftest import WIDTHS, OpenScreen, Producer, Screen
from tests.dashboard.test_pages import PAGES
from tests.dashboard.test_simple_mq import made
from tests.support.processes import Server
from tests.support.tokens import token

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&javascript:alert(1)'


def sign_in(screen: Screen, text: str) -> None:
    screen.page.get_by_label("Token").fill(text)
    screen.button("Sign in").click()


def signed_in(open_screen: OpenScreen, guarded: Server, role: str) -> Screen:
    screen = open_screen(guarded)
    screen.open("queues")
    sign_in(screen, token(role))
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    return screen


@pytest.mark.parametrize("width", WIDTHS)
def test_a_token_is_asked_for_judged_and_forgotten(open_screen: OpenScreen, guarded: Server, width: int) -> None:
    screen = open_screen(guarded, width)
    screen.open("overview")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Sign in to Queen")
    sign_in(screen, "nonsense")
    expect(screen.page.get_by_role("alert")).to_be_visible()
    sign_in(screen, token("admin"))
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert screen.page.evaluate("Object.keys(localStorage).length") == 0
    assert screen.page.evaluate("document.cookie") == ""
    screen.page.reload()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Overview")
    if screen.button("Menu").is_visible():
        screen.button("Menu").click()
    expect(screen.page.locator(".user")).to_contain_text("alice")
    screen.button("Sign out").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Sign in to Queen")
    assert screen.page.evaluate("sessionStorage.length") == 0


def test_a_token_that_is_no_longer_good_is_asked_for_again(open_screen: OpenScreen, guarded: Server) -> None:
    screen = signed_in(open_screen, guarded, "admin")
    screen.page.evaluate("sessionStorage.setItem('queen.token', 'stale')")
    screen.button("Refresh").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Sign in to Queen")
    expect(screen.page.get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize(("role", "creates", "deletes"), [("read-only", 0, 0), ("read-write", 1, 0), ("admin", 1, 1)])
def test_only_what_the_level_allows_is_shown(
    open_screen: OpenScreen, guarded: Server, role: str, creates: int, deletes: int
) -> None:
    admin = signed_in(open_screen, guarded, "admin")
    admin.button("New queue").click()
    admin.answer("Create", queue=f"for {role}")
    admin.says(f"Queue for {role} created")
    screen = signed_in(open_screen, guarded, role)
    expect(screen.row(f"for {role}")).to_be_visible()
    expect(screen.button("New queue")).to_have_count(creates)
    expect(screen.button(f"Delete for {role}")).to_have_count(deletes)
    screen.open("maintenance", title="Maintenance")
    expect(screen.page.get_by_text("Pause pops", exact=True)).to_be_visible()
    expect(screen.button("Switch on: Pause pops")).to_have_count(deletes)


def test_hostile_texts_are_only_read(open_screen: OpenScreen, server: Server, producer: Producer) -> None:
    producer.push(HOSTILE, {HOSTILE: HOSTILE}, partition=HOSTILE, transactionId=HOSTILE)
    (message,) = producer.pop(HOSTILE, HOSTILE)
    producer.trace(message, HOSTILE, HOSTILE)
    producer.ack(message, HOSTILE, "dlq", HOSTILE)
    simple = made(server, HOSTILE, HOSTILE)
    screen = open_screen(server, min(WIDTHS))
    places = [
        *((name,) for name in PAGES), ("queues", HOSTILE), ("groups", HOSTILE), ("traces", HOSTILE),
        ("messages", message["partitionId"], HOSTILE), ("simple", simple),
    ]  # fmt: skip
    for place in places:
        screen.open(*place)
        expect(screen.page.locator(".bar .badge")).not_to_have_text("…")
        if place[0] not in ("system", "maintenance", "sqs"):  # names of queues of SQS have letters, digits, - and _
            expect(screen.page.locator("main")).to_contain_text(HOSTILE)
        assert screen.page.locator("main img, main script, [onerror]").count() == 0, place
        assert screen.page.evaluate("window.hacked") is None, place
        assert screen.page.locator("a[href^=javascript]").count() == 0, place
        assert screen.fits(), place


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_has_a_barrier_that_axe_knows(
    open_screen: OpenScreen, server: Server, producer: Producer, queue: str, scheme: str, width: int
) -> None:
    producer.push(queue, {"a": 1}, {"a": 2})
    first, second = producer.pop(queue, "g")
    producer.trace(first, "seen", queue)
    producer.ack(second, "g", "dlq", "why")
    screen = open_screen(server, width, color_scheme=scheme)
    places = [
        *((name,) for name in PAGES), ("queues", queue), ("groups", "g"), ("traces", queue),
        ("messages", first["partitionId"], first["transactionId"]),
    ]  # fmt: skip
    for place in places:
        screen.open(*place)
        expect(screen.page.locator(".bar .badge")).to_have_text("Healthy")
        expect(screen.page.locator("main .card").first).to_be_visible()
        found = Axe().run(screen.page)
        assert found.violations_count == 0, (place, found.generate_report())


def test_the_keyboard_reaches_the_content_and_keeps_its_place(
    open_screen: OpenScreen, server: Server, producer: Producer, queue: str
) -> None:
    producer.push(queue, 1)
    screen = open_screen(server)
    screen.page.goto(f"{screen.url}/#/queues?search={queue}")
    expect(screen.row(queue)).to_be_visible()
    screen.page.keyboard.press("Tab")
    expect(screen.page.get_by_role("link", name="Skip to content")).to_be_focused()
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator(".view")).to_be_focused()
    pending = screen.button("Pending")
    pending.focus()
    pending.press("Enter")
    expect(screen.page.get_by_role("columnheader", name="Pending")).to_have_attribute("aria-sort", "descending")
    expect(screen.page.locator("[data-key='sort Pending']")).to_be_focused()
    producer.push(queue, 2)
    expect(screen.row(queue)).to_contain_text("2")
    expect(screen.page.locator("[data-key='sort Pending']")).to_be_focused()
    delete = screen.button(f"Delete {queue}")
    delete.focus()
    delete.press("Enter")
    expect(screen.page.get_by_role("dialog")).to_be_visible()
    screen.page.keyboard.press("Escape")
    expect(screen.page.get_by_role("dialog")).to_have_count(0)
    expect(screen.button(f"Delete {queue}")).to_be_focused()


def test_colours_are_chosen_and_kept(open_screen: OpenScreen, server: Server) -> None:
    screen = open_screen(server, color_scheme="light")
    screen.open("overview", title="Overview")
    background = "getComputedStyle(document.body).backgroundColor"
    light = screen.page.evaluate(background)
    screen.page.get_by_label("Colours").select_option("dark")
    assert screen.page.evaluate(background) != light
    screen.page.reload()
    expect(screen.page.get_by_label("Colours")).to_have_value("dark")
    assert screen.page.evaluate(background) != light


def test_an_unreachable_server_is_reported_until_it_answers_again(open_screen: OpenScreen, server: Server) -> None:
    screen = open_screen(server)
    screen.open("queues", title="Queues")
    expect(screen.page.locator(".bar .badge")).to_have_text("Healthy")
    screen.page.route("**/api/**", lambda route: route.abort())
    expect(screen.page.get_by_role("alert")).to_have_text("The server is unreachable")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    screen.page.unroute("**/api/**")
    expect(screen.page.get_by_role("alert")).to_have_count(0)
    screen.complaints[:] = [text for text in screen.complaints if "ERR_FAILED" not in text]
