"""The main action of every page, in a real browser, at both widths."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Route, expect
from websockets.sync.client import connect

from tests.dashboard.conftest import WIDTHS, OpenScreen, Producer, Screen
from tests.support.processes import Server

PAGES = {
    "overview": "Overview", "queues": "Queues", "messages": "Messages", "dead-letters": "Dead letters",
    "groups": "Consumer groups", "traces": "Traces", "sqs": "SQS queues", "simple": "simple-mq",
    "system": "System", "maintenance": "Maintenance",
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_reached_by_the_menu_and_fits(screen: Screen, name: str) -> None:
    screen.open("overview", title="Overview")
    if screen.button("Menu").is_visible():
        screen.button("Menu").click()
    screen.page.get_by_role("navigation", name="Pages").get_by_role("link", name=PAGES[name], exact=True).click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text(PAGES[name])
    expect(screen.page).to_have_title(re.compile(PAGES[name]))
    expect(screen.page.locator(".bar .badge")).not_to_have_text("…")
    assert screen.fits()


def test_the_overview_shows_figures_and_stays_up_to_date(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, *range(500))
    screen.open("overview", title="Overview")
    backlog = screen.page.get_by_role("region", name="Queues with the largest backlog")
    expect(backlog.get_by_role("row").filter(has_text=queue)).to_contain_text("500")
    producer.push(queue, *range(7))
    expect(backlog.get_by_role("row").filter(has_text=queue)).to_contain_text("507")
    screen.page.locator("summary").first.click()
    expect(screen.page.get_by_role("img", name="Messages per second")).to_be_visible()


def test_a_queue_is_made_found_and_deleted(screen: Screen, queue: str) -> None:
    screen.open("queues", title="Queues")
    screen.button("New queue").click()
    screen.answer("Create", queue=queue, namespace="shop", leaseTime="90")
    screen.says(f"Queue {queue} created")
    screen.button("New queue").click()
    dialog = screen.page.get_by_role("dialog")
    dialog.locator("[name=queue]").fill(queue)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"There is a queue {queue} already")
    dialog.get_by_role("button", name="Cancel").click()
    screen.page.get_by_label("Search").fill(queue)
    expect(screen.page.get_by_role("row")).to_have_count(2)
    screen.button(f"Delete {queue}").click()
    expect(screen.page.get_by_role("dialog").get_by_role("button", name="Delete queue")).to_be_disabled()
    screen.answer("Delete queue", typed=queue)
    screen.says(f"Queue {queue} deleted")
    expect(screen.row(queue)).to_have_count(0)


def test_a_queue_shows_partitions_and_options_which_can_be_changed(
    screen: Screen, producer: Producer, queue: str
) -> None:
    producer.call("POST", "/api/v1/configure", {"queue": queue, "options": {"leaseTime": 30, "windowBuffer": 0}})
    producer.push(queue, 1, 2, partition="bob")
    producer.pop(queue, "billing")
    screen.open("queues", queue, title=queue)
    expect(screen.row("bob")).to_contain_text("2")
    expect(screen.row("billing")).to_contain_text("Stable")
    # The legend of a chart is such a list, too, once there are figures.
    options = screen.page.locator(".facts", has_text="Lease time")
    expect(options).to_contain_text("30 s")
    screen.button("Change options").click()
    screen.answer("Save", leaseTime="3600", retentionSeconds="60")
    expect(options).to_contain_text("1 h")
    stored = producer.call("GET", f"/api/v1/configure?queue={queue}")["options"]
    assert (stored["leaseTime"], stored["retentionSeconds"], stored["retryLimit"]) == (3600, 60, 3)
    assert screen.fits()


def test_timers_are_fired_and_cancelled_and_schedules_deleted(screen: Screen, producer: Producer, queue: str) -> None:
    operations = [
        {"op": "schedule", "queue": queue, "timerKey": key, "payload": "MQ==", "delayMs": 3_600_000}
        for key in ("first/timer", "second")
    ]
    producer.call("POST", "/api/v1/timers", {"operations": operations})
    producer.call(
        "POST", "/api/v1/schedules", {"queue": queue, "name": "daily", "cron": "0 7 * * *", "payload": {"n": 1}}
    )
    screen.open("queues", queue, title=queue)
    expect(screen.row("daily")).to_contain_text("0 7 * * * (UTC)")
    screen.button("Fire first/timer").click()
    screen.says("Timer fired")
    expect(screen.row("first/timer")).to_have_count(0)
    assert screen.fits()
    screen.button("Cancel second").click()
    screen.answer("Cancel timer")
    screen.says("Timer cancelled")
    screen.button("Delete daily").click()
    screen.answer("Delete schedule", typed="daily")
    screen.says("Schedule deleted")
    expect(screen.page.get_by_role("heading", name="Timers")).to_be_hidden()


def test_all_timers_and_schedules_of_a_queue_can_be_reached(screen: Screen, producer: Producer, queue: str) -> None:
    operations = [
        {"op": "schedule", "queue": queue, "timerKey": f"t{number:03}", "payload": "MQ==", "delayMs": 3_600_000}
        for number in range(60)
    ]
    producer.call("POST", "/api/v1/timers", {"operations": operations})
    for number in range(51):
        cron = {"queue": queue, "name": f"s{number:03}", "cron": "0 7 * * *", "payload": 1}
        producer.call("POST", "/api/v1/schedules", cron)
    screen.open("queues", queue, title=queue)
    timers = screen.page.get_by_role("navigation", name="Pages of timers")
    expect(screen.row("t049")).to_be_visible()
    timers.get_by_role("button", name="Next").click()
    expect(screen.row("t059")).to_be_visible()
    screen.page.reload()
    expect(screen.row("t059")).to_be_visible()
    assert screen.fits()
    timers.get_by_role("button", name="First").click()
    expect(screen.row("t000")).to_be_visible()
    schedules = screen.page.get_by_role("navigation", name="Pages of Cron schedules")
    schedules.get_by_role("button", name="Next").click()
    expect(screen.row("s050")).to_be_visible()


def test_a_queue_and_a_group_are_paused_and_resumed(screen: Screen, producer: Producer, queue: str) -> None:
    group = f"billing {queue}"
    producer.push(queue, 1, 2)
    for message in producer.pop(queue, group, batch=1):
        producer.ack(message, group)
    screen.open("queues", queue, title=queue)
    screen.button(f"Pause {queue}").click()
    screen.answer("Pause")
    screen.says(f"{queue} is paused")
    screen.open("groups", group, title=f"Group {group}")
    screen.button(f"Pause {group} on {queue}").click()
    screen.answer("Pause")
    expect(screen.page.get_by_text("paused", exact=True)).to_be_visible()
    assert screen.fits()
    assert producer.call("GET", f"/api/v1/pop/queue/{queue}?consumerGroup={quote(group)}") is None
    screen.button(f"Resume {group} on {queue}").click()
    screen.says(f"{group} on {queue} is resumed")
    screen.open("queues", queue, title=queue)
    screen.button(f"Resume {queue}").click()
    expect(screen.button(f"Pause {queue}")).to_be_visible()
    assert [message["data"] for message in producer.pop(queue, group)] == [2]


def test_a_number_with_many_digits_is_pushed_and_shown_as_it_is(screen: Screen, producer: Producer, queue: str) -> None:
    producer.call("POST", "/api/v1/configure", {"queue": queue})
    screen.open("queues", queue, title=queue)
    screen.button("Push a message").click()
    screen.answer("Push", payload='{"account": 12345678901234567890}', transactionId="t1")
    screen.says("Message pushed")
    screen.open("messages")
    screen.page.get_by_role("link", name="t1").first.click()
    expect(screen.page.get_by_label("Payload", exact=True)).to_contain_text("12345678901234567890")
    stored = producer.pop(queue, "g")
    assert stored[0]["data"] == {"account": 12345678901234567890}


def test_a_text_is_searched_for_beyond_the_page(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, *({"item": f"needle-{n}" if n % 100 == 0 else "hay"} for n in range(4000)))
    screen.open("messages", title="Messages")
    screen.page.get_by_label("Queue", exact=True).fill(queue)
    screen.page.get_by_label("Payload or id contains").fill("NEEDLE")
    screen.button("Search").click()
    expect(screen.page.get_by_role("row")).to_have_count(26)
    expect(screen.page.get_by_text("25 found among 2,500")).to_be_visible()
    screen.button("Search further back").click()
    expect(screen.page.get_by_text("15 found among 1,500, from the 2,501. on")).to_be_visible()
    expect(screen.page.get_by_role("row")).to_have_count(16)
    assert screen.fits()
    screen.button("Newest").click()
    expect(screen.page.get_by_role("row")).to_have_count(26)


def test_a_search_is_not_repeated_every_few_seconds(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, "hay")
    asked: list[str] = []
    screen.page.on("request", lambda sent: asked.append(sent.url) if "/api/v1/messages?" in sent.url else None)
    screen.page.clock.install()
    screen.open("messages", title="Messages")
    expect(screen.page.get_by_role("row").first).to_be_visible()
    with screen.page.expect_request(lambda sent: "/api/v1/messages?" in sent.url):
        screen.page.clock.run_for(30_000)
    screen.page.get_by_label("Payload or id contains").fill("hay")
    screen.button("Search").click()
    expect(screen.page.get_by_text("found among")).to_be_visible()
    before = len(asked)
    screen.page.clock.run_for(30_000)
    screen.page.wait_for_load_state("networkidle")
    assert len(asked) == before


def test_a_group_shows_its_lag_over_time_and_who_is_connected(screen: Screen, producer: Producer, queue: str) -> None:
    group = f"mail {queue}"
    producer.push(queue, *range(30))
    producer.pop(queue, group, 1)
    producer.push(f"{queue}-quiet", 1)
    with connect(f"ws://127.0.0.1:{producer.server.port}/api/v1/subscribe") as socket:
        for frame in ({"type": "subscribe", "ref": 1, "queue": queue, "consumerGroup": group, "credit": 5},):
            socket.recv()
            socket.send(json.dumps(frame))
        screen.open("groups", group, title=f"Group {group}")
        connected = screen.page.get_by_role("region", name=f"Connected consumers of {queue}")
        expect(connected.get_by_role("row").filter(has_text="WebSocket")).to_contain_text("127.0.0.1:")
        chart = screen.page.get_by_role("img", name=f"Lag on {queue}")
        expect(chart).to_have_attribute("aria-label", re.compile("Messages 30, max 30"))
        assert screen.fits()
    expect(connected).to_contain_text("no WebSocket is open")


def test_a_group_of_many_queues_is_shown_queue_by_queue(screen: Screen, producer: Producer, queue: str) -> None:
    """They were all on one page; and of a name that is part of a hundred others there was no such group."""
    group = queue[-6:]
    for number in range(60):
        producer.push(f"{queue}-{number:02}", *range(number % 3 + 1))
        producer.pop(f"{queue}-{number:02}", group, 1)
    items = [{"queue": f"{queue}-x", "payload": 1}]
    producer.call("POST", "/api/v1/push", {"items": items})
    for number in range(101):
        producer.pop(f"{queue}-x", f"0 {group} {number}", 1)
    screen.open("groups", group, title=f"Group {group}")
    rows = screen.page.get_by_role("region", name="Queues of this group").locator("tbody tr")
    expect(screen.page.get_by_text("1 to 50 of 60")).to_be_visible()
    expect(rows.first).to_contain_text(f"{queue}-02")
    expect(rows).to_have_count(50)
    screen.page.get_by_label("Search").fill("-59")
    expect(rows).to_have_count(1)
    assert screen.fits()
    screen.page.get_by_role("link", name=f"{queue}-59").click()
    partitions = screen.page.get_by_role("region", name=f"Partitions of {queue}-59")
    expect(partitions.locator("tbody tr")).to_contain_text("alice")
    screen.page.reload()
    expect(partitions.locator("tbody tr")).to_contain_text("alice")
    screen.page.get_by_role("link", name="All queues of this group").click()
    expect(screen.page.get_by_text("1 to 50 of 60")).to_be_visible()
    screen.page.goto(f"{screen.url}/#/groups?search={queue}-x")
    expect(screen.page.get_by_text("1 to 100 of 101")).to_be_visible()
    screen.open("queues", f"{queue}-x", title=f"{queue}-x")
    expect(screen.page.get_by_text("1 to 10 of 101")).to_be_visible()


def test_charts_of_a_new_group_say_since_when_they_collect(screen: Screen, producer: Producer, queue: str) -> None:
    """A point in a wide frame, and zeros of an hour in which there was no group."""
    producer.push(queue, *range(3))
    producer.pop(queue, "new", 1)
    begun = {"subscriptionCreatedAt": "2026-11-21T10:00:10.000Z"}
    answers = {"subscribed": begun, "lag": [{"bucket": "2026-11-21T10:00:00.000Z", "lag": 3, "oldestSeconds": 1}]}

    def groups(route: Route) -> None:
        answer = route.fetch().json()
        answer["queues"][0] |= answers["subscribed"]
        route.fulfill(json=answer)

    screen.page.route("**/consumer-groups/new/queues?*", groups)
    screen.page.route(
        "**/consumer-groups/new/queues/*/lag?*",
        lambda route: route.fulfill(json={"bucketMinutes": 1, "series": answers["lag"]}),
    )
    screen.page.clock.install(time="2026-11-21T10:00:30Z")
    screen.page.goto(f"{screen.url}/#/groups/new?queue={queue}")
    chart = screen.page.get_by_role("img", name=f"Lag on {queue}")
    expect(chart).to_contain_text("Collecting since")
    expect(chart.locator("canvas")).to_have_count(0)
    expect(chart.locator("dd")).to_have_text("3")
    assert screen.fits()
    screen.page.clock.run_for(10 * 60_000)
    expect(chart.locator("canvas")).to_be_visible()
    screen.page.locator("figure").filter(has_text=f"Lag on {queue}").locator("summary").click()
    figures = screen.page.get_by_role("region", name=f"Data of Lag on {queue}")
    expect(figures.locator("tbody tr")).to_have_count(11)


def test_system_and_maintenance_do_not_ask_for_the_metrics_of_all_queues(
    open_screen: OpenScreen, server: Server, producer: Producer, queue: str
) -> None:
    producer.push(queue, 1)
    screen = open_screen(server)
    for name in ("system", "maintenance"):
        with screen.page.expect_response("**/metrics/prometheus*") as found:
            screen.open(name, title=PAGES[name])
        text = found.value.text()
        assert "queen_queue_" not in text
        assert len(text) < 60_000


def test_messages_are_searched_given_up_retried_and_deleted(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, {"item": "tea"}, transactionId=f"{queue}-tea")
    producer.push(queue, {"item": "milk"}, transactionId=f"{queue}-milk")
    screen.open("messages", title="Messages")
    screen.page.get_by_label("Queue", exact=True).fill(queue)
    screen.page.get_by_label("Payload or id contains").fill("TEA")
    screen.button("Search").click()
    expect(screen.page.get_by_role("row")).to_have_count(2)
    screen.page.get_by_role("link", name=f"{queue}-tea").click()
    expect(screen.page.get_by_label("Payload", exact=True)).to_contain_text('"item": "tea"')
    screen.button(f"Dead-letter {queue}-tea").click()
    screen.answer("Move", error="smells")
    screen.says("Message moved to the dead letters")
    expect(screen.page.locator(".facts")).to_contain_text("smells")
    screen.button(f"Replay {queue}-tea").click()
    screen.answer("Replay")
    screen.says(f"Replayed to {queue}, partition alice")
    screen.button(f"Delete {queue}-tea").click()
    screen.answer("Delete message")
    screen.says("Message deleted")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Messages")
    left = producer.call("GET", f"/api/v1/messages?queue={queue}")["messages"]
    assert sorted(message["payload"]["item"] for message in left) == ["milk", "tea"]
    assert f"{queue}-tea" not in {message["transactionId"] for message in left}


@pytest.mark.parametrize("width", WIDTHS)
def test_undecryptable_messages_show_the_reason_and_fit(open_screen: OpenScreen, keyless: Server, width: int) -> None:
    screen = open_screen(keyless, width)
    why = "add it to QUEEN_ENCRYPTION_OLD_KEYS"
    for place in ("messages", "dead-letters"):
        screen.open(place, title=PAGES[place])
        expect(screen.row("alive" if place == "messages" else "dead")).to_be_visible()
        assert screen.fits(), place
    screen.open("messages", title="Messages")
    if width == max(WIDTHS):
        expect(screen.row("alive")).to_contain_text(why)
    screen.page.get_by_role("link", name="alive").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Message alive")
    payload = screen.page.locator("section").filter(has=screen.page.get_by_role("heading", name="Payload"))
    expect(payload).to_contain_text(why)
    expect(screen.page.get_by_label("Payload", exact=True)).to_be_hidden()
    expect(screen.page.locator(".facts")).to_contain_text("Lease until")
    assert screen.fits()


def test_a_name_that_no_browser_can_request_is_explained(screen: Screen, producer: Producer) -> None:
    producer.push("..", 1)
    try:
        screen.open("queues", title="Queues")
        screen.page.get_by_role("link", name="..", exact=True).click()
        expect(screen.page.get_by_role("heading", level=1)).to_have_text("..")
        expect(screen.page.get_by_role("alert")).to_contain_text("Use the command line")
        assert screen.fits()
    finally:
        producer.call("DELETE", "/api/v1/resources/queues/%2E%2E")


def test_a_dead_letter_is_replayed_elsewhere_and_the_rest_deleted(
    screen: Screen, producer: Producer, queue: str
) -> None:
    producer.push(queue, 1, 2, 3)
    for message in producer.pop(queue, "billing"):
        producer.ack(message, "billing", "dlq", f"no money for {message['data']}")
    screen.open("dead-letters", title="Dead letters")
    screen.page.get_by_label("Queue").fill(queue)
    screen.button("Search").click()
    letters = screen.page.get_by_role("region", name="Dead letters, newest failure first")
    expect(letters.get_by_role("row")).to_have_count(4)
    row = letters.get_by_role("row")
    row.filter(has_text="no money for 2").get_by_role("button", name="Replay").click()
    screen.answer("Replay", partition="bob")
    screen.says(f"Replayed to {queue}, partition bob")
    expect(row.filter(has_text="no money for 2")).to_have_count(0)
    row.filter(has_text="no money for 1").get_by_role("button", name="Delete").click()
    screen.answer("Delete dead letter")
    expect(row).to_have_count(2)
    screen.button("Delete all 1 of this queue").click()
    screen.answer("Delete all", typed=queue)
    screen.says("1 dead letters deleted")
    expect(letters.get_by_text("No dead letters")).to_be_visible()
    assert [message["data"] for message in producer.pop(queue, "billing")] == [2]


def test_a_group_is_moved_to_the_end_and_back_and_deleted(screen: Screen, producer: Producer, queue: str) -> None:
    group = f"billing {queue}"
    producer.push(queue, 1, 2, 3)
    for message in producer.pop(queue, group, batch=1):
        producer.ack(message, group)
    screen.open("groups", title="Consumer groups")
    screen.page.get_by_label("Search").fill(group)
    expect(screen.row(group)).to_contain_text("2")
    screen.button(f"Seek {group} in {queue}").click()
    dialog = screen.page.get_by_role("dialog")
    dialog.locator("[name=typed]").fill(group)
    dialog.get_by_role("button", name="Seek", exact=True).click()
    expect(dialog.get_by_role("status")).to_contain_text("Choose where to")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Position").select_option("end")
    expect(dialog.get_by_role("status")).to_contain_text(
        "2 messages will be skipped, 0 messages delivered again, in 1 part"
    )
    screen.answer("Seek")
    screen.says("Cursors moved in 1 partitions")
    screen.page.get_by_label("Only groups with a lag").check()
    expect(screen.row(group)).to_have_count(0)
    screen.open("groups", group, title=f"Group {group}")
    expect(screen.button("Seek partition alice")).to_be_visible()
    assert screen.fits()
    screen.button("Seek partition alice").click()
    dialog.get_by_label("Position").select_option("beginning")
    expect(dialog.get_by_role("status")).to_contain_text("3 messages delivered again")
    screen.answer("Seek", typed=group)
    # By its column: among the others is an offset, which is 3 before and after.
    expect(screen.row("alice").locator("td, th").nth(1)).to_have_text("3")
    assert [message["data"] for message in producer.pop(queue, group)] == [1, 2, 3]
    screen.button("Delete group").click()
    screen.answer("Delete group", typed=group)
    expect(screen.page.get_by_text("There is no such consumer group")).to_be_visible()


def test_traces_are_a_timeline_that_the_keyboard_reaches(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, 1, 2)
    name = f"order / {queue}"
    for message in producer.pop(queue, "g"):
        for event in ("received", "charged", "shipped"):
            producer.trace(message, event, name)
    producer.trace(message, "other", f"other {queue}")
    screen.open("traces", title="Traces")
    screen.page.get_by_label("Search").fill(f"ORDER / {queue}")
    expect(screen.page.locator("tbody tr")).to_have_count(1)
    screen.page.get_by_label("Search").fill(f"nothing {queue}")
    expect(screen.page.get_by_text("No trace names found")).to_be_visible()
    expect(screen.page.get_by_role("link", name=f"the trace named nothing {queue}")).to_be_visible()
    screen.page.get_by_label("Search").fill(f"ORDER / {queue}")
    screen.page.reload()
    assert screen.fits()
    screen.page.get_by_role("link", name=name, exact=True).click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text(f"Trace {name}")
    lanes = screen.page.get_by_role("group", name="Traces over time")
    expect(lanes.locator(".lane")).to_have_count(2)
    expect(lanes.get_by_role("button")).to_have_count(6)
    last = lanes.get_by_role("button").last
    last.focus()
    last.press("Enter")
    newest = screen.page.locator(".events li").first
    expect(newest).to_be_focused()
    expect(newest).to_contain_text("shipped")
    expect(screen.page.locator(".events li.bad")).to_have_count(0)
    assert screen.fits()


def test_the_system_shows_workers_engine_and_postgresql(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, 1)
    screen.open("system", title="System")
    lanes = screen.page.get_by_role("region", name="Jobs of the engine by type")
    expect(lanes.get_by_role("row").filter(has_text="push")).to_be_visible()
    expect(screen.page.get_by_role("region", name="Tables", exact=True)).to_contain_text("segments")
    workers = screen.page.get_by_role("region", name="Workers seen in the last 5 minutes")
    expect(workers.get_by_role("row")).to_have_count(3)
    assert screen.fits()


def _set_event_loop_lag(screen: Screen, lag_ms: float) -> None:
    """Workers answer this lag, whatever else the machine has to do."""

    def answer(route: Route) -> None:
        metrics = route.fetch().json()
        workers = [{**row, "maxEventLoopLagMs": lag_ms, "jobQueueSize": 0} for row in metrics["workers"]]
        route.fulfill(json={**metrics, "workers": workers})

    screen.page.route("**/analytics/worker-metrics?*", answer)


def test_the_system_says_first_what_is_wrong(screen: Screen, producer: Producer) -> None:
    _set_event_loop_lag(screen, 1)
    screen.open("system", title="System")
    state = screen.page.locator(".view > [role=status]")
    expect(state.get_by_role("heading", name="Nothing is wrong")).to_be_visible()
    try:
        producer.call("POST", "/api/v1/system/maintenance/pop", {"enabled": True})
        screen.button("Refresh").click()
        expect(state.get_by_role("heading", name="One thing needs attention")).to_be_visible()
        point = state.get_by_role("listitem").filter(has_text="Pops are paused, because somebody switched that on")
        expect(point).to_contain_text("warning")
        assert screen.fits()
        point.get_by_role("link", name="Maintenance").click()
        expect(screen.page.get_by_role("heading", level=1, name="Maintenance")).to_be_visible()
    finally:
        producer.call("POST", "/api/v1/system/maintenance/pop", {"enabled": False})


def test_the_system_names_workers_whose_event_loop_stood_still(open_screen: OpenScreen, server: Server) -> None:
    screen = open_screen(server)
    _set_event_loop_lag(screen, 576)
    screen.open("system", title="System")
    # Workers report ten seconds after their start.
    point = screen.page.locator(".state li").filter(has_text="Event loop of 2 workers stood still, up to 576 ms")
    expect(point).to_contain_text("warning")
    expect(point).to_contain_text("add workers or instances")


def test_the_system_names_each_condition_worst_first(open_screen: OpenScreen, server: Server) -> None:
    """What an installation in trouble would answer."""
    metrics = (
        "queen_database_up 0\nqueen_spool_active 1\nqueen_spool_bytes 90\nqueen_spool_bytes_max 100\n"
        "queen_spool_failed_files 2\nqueen_outbox_oldest_age_seconds 99\nqueen_statistics_age_seconds 900\n"
        'queen_engine_jobs_refused_total{kind="push"} '
    )
    screen = open_screen(server)
    _set_event_loop_lag(screen, 1)
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=200, content_type="text/plain", body=f"{metrics}{5 * len(asked)}\n")

    screen.page.route("**/metrics/prometheus?*", answer)
    screen.page.route("**/postgres-stats", lambda route: route.fulfill(status=503, json={"error": "no database"}))
    screen.open("system", title="System")
    points = screen.page.locator(".state li")
    expect(points).to_have_count(5)
    screen.button("Refresh").click()
    expect(points).to_have_count(6)
    expect(points.first).to_contain_text("PostgreSQL does not answer")
    expect(points.filter(has_text="5 requests were refused since this page is open")).to_contain_text("critical")
    assert points.get_by_text("critical").count() == 4
    expect(points.last).to_contain_text("warning")
    expect(screen.page.locator(".problem")).to_have_text("no database")


def test_pops_are_switched_off_and_on(screen: Screen) -> None:
    screen.open("maintenance", title="Maintenance")
    expect(screen.page.get_by_text("PostgreSQL", exact=True)).to_be_visible()
    expect(screen.page.get_by_text("messages pushed with SQL")).to_be_visible()
    try:
        screen.button("Switch on: Pause pops").click()
        screen.page.keyboard.press("Escape")
        expect(screen.page.get_by_role("dialog")).to_have_count(0)
        screen.button("Switch on: Pause pops").click()
        screen.answer("Switch on")
        screen.says("Pause pops: on")
        expect(screen.page.locator(".bar .badge")).to_have_text("Maintenance")
    finally:
        screen.button("Switch off: Pause pops").click()
    screen.says("Pause pops: off")
    expect(screen.page.locator(".bar .badge")).to_have_text("Healthy")


def test_ten_thousand_partitions_are_sorted_searched_and_paged_by_the_server(
    open_screen: OpenScreen, server: Server, producer: Producer, queue: str
) -> None:
    """Zeros came first, because only the first thousand names were sorted."""
    group = f"billing {queue}"
    for first in range(0, 10_000, 1000):
        names = [f"p{number:05}" for number in range(first, first + 1000)]
        producer.call(
            "POST", "/api/v1/push", {"items": [{"queue": queue, "partition": n, "payload": 1} for n in names]}
        )
    done = 0
    while done < 10_000:
        path = f"/api/v1/pop/queue/{queue}?consumerGroup={quote(group)}&batch=10000&partitions=1000&autoAck=true"
        done += len(producer.call("GET", path)["messages"])
    producer.push(queue, *range(3), partition="p09998")
    producer.push(queue, *range(7), partition="p09999")
    screen = open_screen(server)
    screen.open("groups", group, title=f"Group {group}")
    rows = screen.page.get_by_role("region", name=f"Partitions of {queue}").locator("tbody tr")
    expect(rows.first).to_contain_text("p09999")
    expect(rows.nth(1)).to_contain_text("p09998")
    expect(rows).to_have_count(50)
    expect(screen.page.get_by_text("1 to 50 of 10,000")).to_be_visible()
    expect(screen.page.locator(".tile").filter(has_text="Partitions behind")).to_contain_text("of 10,000")
    screen.button("Next").click()
    expect(screen.page.get_by_text("51 to 100 of 10,000")).to_be_visible()
    screen.page.reload()
    expect(screen.page.get_by_text("51 to 100 of 10,000")).to_be_visible()
    screen.page.get_by_label("Only partitions with a lag").check()
    expect(screen.page.get_by_text("1 to 2 of 2")).to_be_visible()
    screen.page.get_by_label("Search").fill("9998")
    expect(rows).to_have_count(1)
    screen.open("queues", queue, title=queue)
    screen.button("Pending").click()
    partitions = screen.page.get_by_role("region", name="Partitions", exact=True).locator("tbody tr")
    expect(partitions.first).to_contain_text("p09999")
    screen.button("Pending").click()
    expect(partitions.first).not_to_contain_text("p09999")
    screen.page.get_by_label("Search").fill("p0999")
    expect(screen.page.get_by_text("1 to 10 of 10")).to_be_visible()
    slow = screen.page.evaluate(_LONGEST_TASK_OF_A_REFRESH)
    assert slow < 100, slow
    assert screen.fits()


#: The longest task while the page asks the server again and shows the answers, in ms.
_LONGEST_TASK_OF_A_REFRESH = """async () => {
    let longest = 0;
    const seen = list => list.getEntries().forEach(each => { longest = Math.max(longest, each.duration); });
    new PerformanceObserver(seen).observe({ entryTypes: ["longtask"] });
    const answers = () => performance.getEntriesByType("resource").length;
    const before = answers();
    [...document.querySelectorAll(".bar button")].find(each => each.textContent === "Refresh").click();
    await new Promise(resolve => {
        const check = () => (answers() >= before + 4 ? requestIdleCallback(resolve) : requestAnimationFrame(check));
        check();
    });
    return longest;
}"""


def test_a_message_says_which_group_gave_it_up_and_why(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, 1, transactionId=f"{queue}-t")
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no money'
    for group, status, error in (("fine", "completed", None), ("broke", "dlq", traceback)):
        for message in producer.pop(queue, group):
            producer.ack(message, group, status, error)
            partition = message["partitionId"]
    screen.open("messages", partition, f"{queue}-t", title=f"Message {queue}-t")
    groups = screen.page.locator("section").filter(has=screen.page.get_by_role("heading", name="Consumer groups"))
    expect(groups.get_by_role("listitem").filter(has_text="fine")).to_contain_text("acknowledged")
    broke = groups.get_by_role("listitem").filter(has_text="broke")
    expect(broke).to_contain_text("given up")
    expect(broke.locator("summary")).to_have_text("ValueError: no money")
    broke.locator("summary").click()
    expect(broke.get_by_label("Error")).to_have_text(traceback)
    screen.button("Refresh").click()
    expect(broke.get_by_label("Error")).to_be_visible()
    assert broke.get_by_label("Error").inner_text() == traceback, "on lines of their own"
    assert screen.fits()


def test_a_dialog_stays_open_until_its_action_has_run_and_keeps_what_was_typed(
    screen: Screen, producer: Producer, queue: str
) -> None:
    producer.call("POST", "/api/v1/configure", {"queue": queue})
    screen.open("queues", queue, title=queue)
    screen.button("Push a message").click()
    dialog = screen.page.get_by_role("dialog")
    dialog.locator("[name=payload]").fill('{"item": tea}')
    dialog.locator("[name=partition]").fill("bob")
    dialog.get_by_role("button", name="Push", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("JSON")
    expect(dialog.locator("[name=payload]")).to_have_value('{"item": tea}')
    expect(dialog.locator("[name=partition]")).to_have_value("bob")
    screen.answer("Push", payload='{"item": "tea"}')
    screen.says("Message pushed")
    assert screen.fits()
    notice = screen.page.get_by_role("status").get_by_role("button", name="Dismiss")
    box = notice.bounding_box()
    assert box
    assert box["height"] < 40, "its button is on one line"
    screen.page.locator(".view").get_by_role("link", name="Dead letters", exact=True).first.click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    expect(notice).to_have_count(0)


def test_a_queue_that_does_not_exist_offers_nothing_to_do(screen: Screen, queue: str) -> None:
    screen.open("queues", queue, title=queue)
    expect(screen.page.get_by_text("There is no queue of this name")).to_be_visible()
    for name in ("Push a message", "Delete queue", "Change options"):
        expect(screen.button(name)).to_be_hidden()
    expect(screen.page.get_by_role("alert")).to_be_hidden()
    assert screen.fits()


def test_consumers_without_a_group_have_one_name_everywhere(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, 1, 2, transactionId=None)
    first, _ = producer.pop(queue, "__QUEUE_MODE__")
    producer.ack(first, "__QUEUE_MODE__", "dlq", "no")
    producer.trace(first, "failed", f"trace {queue}")
    for place in (
        f"groups?search={queue}", "groups/__QUEUE_MODE__", f"queues/{queue}",
        f"messages/{first['partitionId']}/{first['id']}", f"traces/trace%20{queue}",
    ):  # fmt: skip
        screen.page.goto(f"{screen.url}/#/{place}")
        expect(screen.page.locator("main").get_by_text("queue mode").first).to_be_visible()
        expect(screen.page.get_by_text("__QUEUE_MODE__")).to_have_count(0)
    assert screen.fits()
    screen.page.goto(f"{screen.url}/#/groups/__QUEUE_MODE__?queue={queue}")
    screen.button("Delete group").click()
    screen.answer("Delete group", typed="queue mode")
    screen.says("Group queue mode deleted")


def test_dead_letters_are_grouped_by_error_and_replayed_together(
    screen: Screen, producer: Producer, queue: str
) -> None:
    producer.push(queue, *range(6))
    for message in producer.pop(queue, "billing"):
        error = "no money" if message["data"] < 4 else f"late {message['data']}"
        producer.ack(message, "billing", "dlq", error)
    screen.open("dead-letters", title="Dead letters")
    screen.page.get_by_label("Queue").fill(queue)
    screen.button("Search").click()
    errors = screen.page.get_by_role("region", name="Errors, commonest first")
    expect(errors.locator("tbody tr").first).to_contain_text("no money")
    expect(errors.locator("tbody tr").first).to_contain_text("4")
    assert screen.fits()
    errors.get_by_role("link", name="no money").click()
    letters = screen.page.get_by_role("region", name="Dead letters, newest failure first")
    expect(letters.locator("tbody tr")).to_have_count(4)
    screen.button("Replay all 4 with this error").click()
    screen.answer("Replay all")
    screen.says("4 dead letters replayed")
    expect(letters.get_by_text("No dead letters")).to_be_visible()
    screen.page.get_by_role("link", name="All errors").click()
    expect(letters.locator("tbody tr")).to_have_count(2)
    letters.get_by_role("checkbox", name="Select all of this page").check()
    screen.button("Refresh").click()
    screen.button("Delete 2 selected").click()
    screen.answer("Delete")
    screen.says("2 dead letters deleted")
    expect(letters.get_by_text("No dead letters")).to_be_visible()
    assert sorted(message["data"] for message in producer.pop(queue, "billing")) == [0, 1, 2, 3]


def test_all_that_is_deleted_is_what_the_filters_show(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, 1, 2)
    for group in ("one", "two"):
        for message in producer.pop(queue, group):
            producer.ack(message, group, "dlq", "no")
    screen.page.goto(f"{screen.url}/#/dead-letters?queue={queue}&consumerGroup=one")
    screen.button("Delete all 2 of one").click()
    screen.answer("Delete all", typed=queue)
    screen.says("2 dead letters deleted")
    screen.page.goto(f"{screen.url}/#/dead-letters?queue={queue}")
    expect(screen.button("Delete all 2 of this queue")).to_be_visible()


def test_a_page_says_that_it_is_loading(open_screen: OpenScreen, server: Server) -> None:
    screen = open_screen(server)
    screen.page.route("**/api/v1/resources/queues*", lambda route: None)
    screen.open("queues", title="Queues")
    expect(screen.page.get_by_role("status").filter(has_text="Loading")).to_be_visible()
    expect(screen.page.get_by_text("No queues found")).to_have_count(0)
    view = screen.page.locator(".view")
    top = "view => view.getBoundingClientRect().top"
    loading = view.evaluate(top)
    screen.page.unroute_all(behavior="ignoreErrors")
    screen.page.reload()
    expect(screen.page.get_by_role("status").filter(has_text="Loading")).to_be_hidden()
    assert view.evaluate(top) == loading, "nothing moves under the mouse when a page has loaded"


def test_a_refresh_changes_only_what_differs(
    open_screen: OpenScreen, server: Server, producer: Producer, queue: str
) -> None:
    for number in range(3):
        producer.push(f"{queue}-{number}", 1)
    screen = open_screen(server)
    screen.page.goto(f"{screen.url}/#/queues?search={queue}")
    rows = screen.page.locator("tbody tr")
    expect(rows).to_have_count(3)
    screen.page.evaluate("() => document.querySelectorAll('tbody tr').forEach((row, n) => { row.mark = n; })")
    producer.push(f"{queue}-1", 2)
    producer.push(f"{queue}-0a", 1)
    screen.button("Refresh").click()
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text("2")
    marks = screen.page.evaluate("() => [...document.querySelectorAll('tbody tr')].map(row => row.mark ?? null)")
    assert marks == [0, None, 1, 2]


def test_tiles_lead_to_what_they_count(screen: Screen, producer: Producer, queue: str) -> None:
    producer.push(queue, *range(3))
    screen.open("overview", title="Overview")
    screen.page.get_by_role("link", name="Pending", exact=True).click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(screen.page.get_by_role("columnheader", name="Pending")).to_have_attribute("aria-sort", "descending")
