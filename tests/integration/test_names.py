"""Names of queues, partitions and groups: whatever characters they have, in bodies and in paths."""

from urllib.parse import quote

import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, pop_path
from tests.support.processes import Server

NAMES = {
    "space": "a b",
    "spaces around": "  a  ",
    "slash": "a/b",
    "slashes": "/a//b/",
    "backslash": "a\\b",
    "percent": "100%",
    "percent code": "a%20b%2Fc",
    "percent format": "%s%d%(a)s%%",
    "plus": "a+b",
    "query": "a?b=c&d#e",
    "quotes": 'it\'s "quoted" `so`',
    "SQL": "'; DROP TABLE queen.queues; --",
    "braces": "{a} $1 :b @c",
    "umlaut": "Größe",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "Japanese": "注文キュー",
    "right to left": "عربى",
    "emoji": "📬👩‍👩‍👧",
    "dots": "a.b.c.d",
    "leading dots": "...a",
    "control characters": "a\tb\nc\x7f",
    "case": "CamelCase",
    "line separators": "a\u2028b\u0085c",
    "noncharacter": "\uffff\U0010ffff",
    "partition": "partition",
    "null": "null",
    "number": "42",
    "255 characters": "é" * 255,
    "255 emoji": "😀" * 255,
}
#: Those that make another URL when they are put into one as they are.
OTHER_URLS = {"slashes", "percent code", "query", "control characters"}


async def take(api: Api, queue: str, partition: str | None, group: str) -> list[object]:
    popped = await api.pop(queue, partition, consumerGroup=group, subscriptionMode="all")
    (message,) = popped.messages
    assert (message["queue"], message["partition"], message["consumerGroup"]) == (queue, partition, group)
    assert (popped.body["queue"], popped.body["partition"]) == (queue, partition)
    (result,) = await api.ack(popped.messages)
    assert (result["success"], result["queueName"], result["partitionName"]) == (True, queue, partition)
    return popped.data


@checks("G-DUR-3", level=Level.LIVE)
@pytest.mark.parametrize("name", NAMES)
async def test_name_of_any_characters_serves_as_queue_partition_and_group(api: Api, name: str) -> None:
    text = NAMES[name]
    (result,) = await api.push(text, name, partition=text, ids=[text])
    assert (result["queueName"], result["transaction_id"], result["status"]) == (text, text, "queued")
    (again,) = await api.push(text, name, partition=text, ids=[text])
    assert again["status"] == "duplicate"
    if text == "null":  # as a partition in a path it stands for none, as in the original
        popped = await api.pop(text, consumerGroup=text)
        assert (popped.data, popped.messages[0]["partition"]) == (["null"], "null")
    else:
        assert await take(api, text, text, text) == [name]
        assert (await api.pop(text, text, consumerGroup=text)).messages == []
    assert (await api.configure(text, namespace=text, task=text))["queue"] == text
    assert (await api.pop_label(namespace=text, task=text, consumerGroup="label")).data == [name]
    body = await api.delete(text)
    assert (body["existed"], body["queue"]) == (True, text)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHER_URLS])
async def test_name_in_a_path_as_the_published_client_sends_it_is_understood(server: Server, name: str) -> None:
    """It puts names into the URL as they are; what a URL cannot hold, its library encodes."""
    text = NAMES[name]
    async with open_client(server.port) as http:
        api = Api(http)
        await api.push(text, 1, partition="p")
        response = await http.get(f"http://127.0.0.1:{server.port}/api/v1/pop/queue/{text}/partition/p")
        assert response.status_code == 200, response.text
        assert (response.json()["queue"], response.json()["partition"]) == (text, "p")
        response = await http.delete(f"http://127.0.0.1:{server.port}/api/v1/resources/queues/{text}")
        assert response.json() == {"deleted": True, "queue": text, "existed": True}


async def test_names_that_differ_in_case_or_form_are_different(api: Api, queue: str) -> None:
    forms = [f"{queue}-{form}" for form in ("a", "A", "a ", "\u00e9", "e\u0301", "ß", "ss")]
    for form in forms:
        await api.push(form, form, partition=form)
    for form in forms:
        assert (await api.pop(form, batch=10, partitions=10)).data == [form]


async def test_name_with_the_word_partition_between_slashes_is_a_queue_when_encoded(api: Api, queue: str) -> None:
    name = f"{queue}/partition/a"
    await api.push(name, "whole")
    response = await api.http.get(f"/api/v1/pop/queue/{quote(name, safe='')}")
    assert response.status_code == 200, "what is encoded is one name"
    assert response.json()["queue"] == name


async def test_name_after_partition_may_itself_have_slashes(api: Api, queue: str) -> None:
    await api.push(queue, 1, partition="a/b/partition/c")
    response = await api.http.get(f"/api/v1/pop/queue/{queue}/partition/a/b/partition/c")
    assert response.status_code == 200, response.text
    assert response.json()["partition"] == "a/b/partition/c"


async def test_name_of_a_group_with_plus_and_space_follows_the_rules_of_queries(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    for text, group in (("a+b", "a b"), ("a%2Bb", "a+b"), ("a%20b", "a b"), ("a,b", "a,b"), ("%E2%82%AC", "€")):
        response = await api.http.get(f"{pop_path(queue)}?consumerGroup={text}&leaseSeconds=1&autoAck=true")
        if response.status_code == 200:
            assert response.json()["consumerGroup"] == group
        else:
            assert (text, response.status_code) == ("a%20b", 204), "the group a b has had it"


async def test_name_of_a_queue_takes_characters_not_bytes(api: Api) -> None:
    fits, longer = "😀" * 255, "😀" * 256
    assert (await api.pop(fits)).messages == []
    response: httpx.Response = await api.http.get(pop_path(longer))
    assert response.status_code == 400
    assert response.json()["field"] == "queue"


async def test_names_with_dots_give_namespace_and_task(api: Api, queue: str) -> None:
    await api.push(f"{queue}.orders.eu", 1)
    await api.push(queue, 2)
    assert (await api.pop_label(namespace=queue, task="orders")).data == [1]
    assert (await api.pop_label(namespace=queue)).data == [2]


async def test_names_of_many_new_queues_at_once_are_made(api: Api, queue: str) -> None:
    names = [f"{queue}-{n}" for n in range(1000)]
    results = await api.push_items([{"queue": name, "partition": name, "payload": 1} for name in names])
    assert len({result["partition_id"] for result in results}) == 1000
