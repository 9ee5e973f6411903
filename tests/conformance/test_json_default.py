"""`json_default`: values that JSON cannot carry are written as the queue's option says, or refused with their path."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from sluicegate import PayloadTooDeepError, RedisMessageQueue
from sluicegate.core import json

MakeQueue = Callable[..., RedisMessageQueue]
PARIS = datetime.timezone(datetime.timedelta(hours=2))
ROW = {
    "id": 7,
    "at": datetime.datetime(2026, 3, 1, 12, 0, 5, 250_000, PARIS),
    "local": datetime.datetime(2026, 3, 1, 12),  # noqa: DTZ001  (a row of SQL often has no zone)
    "day": datetime.date(2026, 3, 1),
    "opens": datetime.time(9, 30),
    "lines": [{"price": Decimal("19.90")}, {"price": Decimal("1E+3")}],
    "name": "Zoë",
}
STORED = (
    '{"id":7,"at":"2026-03-01T12:00:05.250000+02:00","local":"2026-03-01T12:00:00","day":"2026-03-01",'
    '"opens":"09:30:00","lines":[{"price":"19.90"},{"price":"1E+3"}],"name":"Zoë"}'
).encode()


@pytest.mark.parametrize("faster", [True, False])
def test_iso_writes_dates_and_decimals_as_text(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    if not faster:
        monkeypatch.setattr(json, "orjson", None)
    queue = make_queue(json_default="iso")
    queue.publish(ROW)  # type: ignore[call-overload]
    queue.publish_many([{"day": ROW["day"]}])  # type: ignore[list-item]
    assert [message.payload for message in queue.claim(2)] == [STORED, b'{"day":"2026-03-01"}']


def test_a_function_is_called_for_what_json_cannot_carry_only(make_queue: MakeQueue) -> None:
    seen: list[object] = []

    def default(value: object) -> object:
        seen.append(value)
        return {"of": Decimal(1)} if isinstance(value, set) else str(value)

    queue = make_queue(json_default=default)
    queue.publish({"a": 1, "b": {1}, "c": None})  # type: ignore[dict-item]
    assert queue.claim(1).messages[0].json() == {"a": 1, "b": {"of": "1"}, "c": None}
    assert seen == [{1}, Decimal(1)], "what it returns may hold further values"


def raises(value: object) -> object:
    raise RuntimeError(f"secret {value}")


@pytest.mark.parametrize(
    ("default", "value", "kind", "text"),
    [
        (None, Decimal(1), TypeError, "payload has a Decimal at $.rows[0]; JSON carries"),
        (None, Decimal(1), TypeError, "json_default= says how to write others"),
        ("iso", uuid.UUID(int=0), TypeError, "a UUID at $.rows[0], which json_default does not write; give it a func"),
        ("iso", Decimal("NaN"), ValueError, "payload has nan at $.rows[0]"),
        ("iso", Decimal("-Infinity"), ValueError, "payload has nan at $.rows[0]"),
        (raises, Decimal(1), TypeError, "a Decimal at $.rows[0], for which json_default raised RuntimeError"),
        (lambda _: {1}, Decimal(1), TypeError, "for which json_default returned a set; let it return a dict"),
        (lambda value: [value], Decimal(1), ValueError, "payload is nested deeper than 200 levels"),
    ],
)
def test_what_cannot_be_written_names_the_path_and_the_option(
    make_queue: MakeQueue, default: Any, value: object, kind: type[Exception], text: str
) -> None:
    queue = make_queue(json_default=default)
    with pytest.raises(kind) as caught:
        queue.publish_many([{"fine": 1}, {"rows": [value]}])  # type: ignore[dict-item]
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.position == 1  # type: ignore[attr-defined]
    assert queue.depth().published_total == 0


def test_the_key_sees_the_value_itself_and_no_template_guesses_its_text(make_queue: MakeQueue) -> None:
    """A date has several texts, and two of them would be two keys of one message."""
    template = make_queue("by-template", json_default="iso", get_deduplication_key="{day}:{id}")
    with pytest.raises(TypeError, match="'day' must be a str or an int, not date; publish it as a str, or give"):
        template.publish(ROW)  # type: ignore[call-overload]
    queue = make_queue(json_default="iso", get_deduplication_key=lambda row: f"{row['day']:%d.%m.%Y}")
    assert queue.publish(ROW)  # type: ignore[call-overload]
    assert queue.claim(1).messages[0].deduplication_key == "01.03.2026"


def test_the_depth_limit_counts_what_is_stored(make_queue: MakeQueue) -> None:
    queue = make_queue(json_default=lambda _: {"a": {"b": 1}}, max_payload_depth=2)
    with pytest.raises(PayloadTooDeepError, match="max_payload_depth=2"):
        queue.publish({"x": Decimal(1)})  # type: ignore[dict-item]
