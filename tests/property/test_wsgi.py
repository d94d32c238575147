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
    assert _wants_to_wait({"PATH_INFO": path, "QUERY_STRING": query}) is waits
