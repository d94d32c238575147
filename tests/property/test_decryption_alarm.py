"""When a failure to decrypt is logged."""

import pytest

from queen.core.errors import DecryptionError
from queen.metrics.encryption import DECRYPTION_FAILURES
from queen.security.alarm import DecryptionAlarm


def counted() -> float:
    (family,) = DECRYPTION_FAILURES.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def test_every_failure_is_counted_and_one_a_minute_told(caplog: pytest.LogCaptureFixture) -> None:
    times = (0.0, 0.0, 59.9, 60.0, 119.9, 300.0)
    alarm, before, told = DecryptionAlarm(iter(times).__next__), counted(), []
    for _ in times:
        caplog.clear()
        alarm.ring(DecryptionError("the key is missing"), "orders", "alice")
        told.append([(record.getMessage(), vars(record)["queue"]) for record in caplog.records])
    text = [("one or more messages cannot be decrypted: the key is missing", "orders")]
    assert told == [text, [], [], text, [], text]
    assert counted() - before == 6
