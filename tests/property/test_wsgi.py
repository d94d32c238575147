"""Which requests hold a thread of a WSGI worker for long."""

import pytest

from queen.server.wsgi import _wants_to_wait

MESSAGES = "/api/queues/018f0000-0000-7000-8000-000000000000/messages"


@pytest.mark.parametrize(
    ("path", "query", "waits"),
    [
        ("/api/v1/pop/queue/q", "wait=true", True),
        ("/api/v1/pop/queue/q", "wait=true&timeout=0", False),
        ("/api/v1/pop/queue/q", "wait=false", False),
        ("/api/v1/push", "wait=true", False),
        (MESSAGES, "wait=20", True),
        (MESSAGES, "limit=5&wait=0.5", True),
        (MESSAGES, "wait=0", False),
        (MESSAGES, "wait=0.0", False),
        (MESSAGES, "", False),
        (f"{MESSAGES}/peek", "limit=5&wait=1", False),
        ("/api/queues", "wait=1", False),
    ],
)
def test_long_polls_of_both_interfaces_are_told_from_other_requests(path: str, query: str, waits: bool) -> None:
    assert _wants_to_wait({"PATH_INFO": path, "QUERY_STRING": query}, b"") is waits


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        (b'{"acknowledgments":[],"pop":{"queue":"q","wait":true}}', True),
        (b'{"pop":{"wait":true,"timeout":0}}', False),
        (b'{"pop":{"wait":false}}', False),
        (b'{"pop":null}', False),
        (b'{"acknowledgments":[]}', False),
        (b'{"pop":{"wait":"true"}}', False),
        (b"[" * 100_000, False),
    ],
)
def test_acks_with_a_pop_that_waits_are_long_polls(body: bytes, waits: bool) -> None:
    assert _wants_to_wait({"PATH_INFO": "/api/v1/ack/batch", "QUERY_STRING": ""}, body) is waits
