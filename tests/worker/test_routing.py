"""Which handler gets a message, and what becomes of one that no handler takes."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import tenacity

from sluicegate import ConfigurationError, DeadMessage, Depth, Message, OptionTypeError, QueueEvent
from sluicegate.worker import Delivery, Retry
from tests.support.flavours import MakeQueue
from tests.worker.conftest import MakeWorker


def handled_as(make_queue: MakeQueue, make_worker: MakeWorker, payload: Any, **headers: str) -> str:
    """Return the name of the handler that gets a message, of one for each of three types and a default one."""
    queue = make_queue()
    queue.publish(payload, headers=headers)
    worker, got = make_worker(queue), []
    for name in ("created", "paid", "shipped"):
        worker.register(name, lambda _, name=name: got.append(name))
    worker.set_default_handler(lambda _: got.append("default"))
    assert worker.run_once().claimed == 1
    return got[0] if got else "none"


@pytest.mark.parametrize(
    ("payload", "headers", "expected"),
    [
        ({"type": "created"}, {}, "created"),
        ({"event_type": "paid"}, {}, "paid"),
        ({"type": "created", "event_type": "paid"}, {}, "created"),
        ({"type": "created"}, {"type": "shipped"}, "shipped"),
        ("no JSON at all", {"type": "shipped"}, "none"),
        ({"type": "", "event_type": "paid"}, {}, "paid"),
        ({"type": 7, "event_type": "paid"}, {}, "paid"),
        ({"type": None}, {}, "default"),
        ({"type": "created"}, {"type": "unknown"}, "default"),
        ({"type": "unknown"}, {}, "default"),
        ({"kind": "created"}, {}, "default"),
        (["type", "created"], {}, "default"),
    ],
)
def test_the_type_is_the_header_else_a_text_in_the_payload(
    make_queue: MakeQueue, make_worker: MakeWorker, payload: Any, headers: dict[str, str], expected: str
) -> None:
    assert handled_as(make_queue, make_worker, payload, **headers) == expected


def test_headers_that_are_no_object_leave_the_type_to_the_payload(
    queue: Any, make_worker: MakeWorker, client: redis.Redis
) -> None:
    queue.publish({"type": "created"}, headers={"a": "b"})
    entry = client.lpop("sluicegate:{orders}:pending")
    assert isinstance(entry, bytes)
    client.lpush("sluicegate:{orders}:pending", entry.replace(b'{"a":"b"}', b'["a","b"]'))
    worker, got = make_worker(queue), []
    worker.register("created", got.append)

    assert worker.run_once().handled == 1
    assert got == [{"type": "created"}]


def test_handlers_are_registered_by_decorator_and_stay_functions(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue, name="w-1")
    seen: list[tuple[Any, ...]] = []

    @worker.handler("created")
    def created(order: dict[str, Any], delivery: Delivery) -> None:
        seen.append((order, delivery.message_type, delivery.attempt, delivery.worker, delivery.max_attempts))
        assert delivery.payload is order
        assert not delivery.lost
        assert not delivery.is_last_attempt

    queue.publish({"type": "created", "order_id": 7})
    assert worker.run_once().handled == 1
    assert created.__name__ == "created"
    assert seen == [({"type": "created", "order_id": 7}, "created", 1, "w-1", 10)]


def test_a_lease_shows_the_workers_name(queue: Any, make_worker: MakeWorker) -> None:
    worker, shown = make_worker(queue, name="billing-7"), []
    worker.register("created", lambda _: shown.extend(each.consumer for each in queue.peek(1, state="in_flight")))
    queue.publish({"type": "created"})

    assert worker.run_once().handled == 1
    assert shown == ["billing-7"]


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], str, bytes, Message, list, Any])
def test_a_handler_gets_the_form_that_its_annotation_names(
    queue: Any, make_worker: MakeWorker, annotation: Any
) -> None:
    worker, got = make_worker(queue), []

    def handle(payload: Any) -> None:
        got.append(payload)

    handle.__annotations__["payload"] = annotation
    worker.register("created", handle)
    queue.publish({"type": "created"})

    assert worker.run_once().handled == 1
    (payload,) = got
    shown = {str: '{"type":"created"}', bytes: b'{"type":"created"}'}
    assert (payload.json() if annotation is Message else payload) == shown.get(annotation, {"type": "created"})


@pytest.mark.parametrize(
    ("annotation", "payload", "text"),
    [
        (dict, [1], "the payload is JSON, but no object"),
        (dict, "no JSON", "the payload is not JSON"),
        (Any, "no JSON", "the payload is not JSON"),
        (str, b"\xff\xfe", "the payload is no UTF-8 text"),
    ],
)
def test_a_payload_in_another_form_is_buried_and_named_only_by_its_path(
    queue: Any, make_worker: MakeWorker, annotation: Any, payload: Any, text: str
) -> None:
    def handle(payload: Any) -> None:
        raise AssertionError("no handler gets such a payload")

    handle.__annotations__["payload"] = annotation
    worker = make_worker(queue)
    worker.set_default_handler(handle)
    queue.publish(payload)

    report = worker.run_once()
    assert (report.invalid, report.buried, report.claimed) == (1, 1, 1)
    (dead,) = queue.peek(1, state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("invalid_payload", "InvalidPayloadError", text)


def unhandled(queue: Any, make_worker: MakeWorker, **options: Any) -> tuple[Any, Depth]:
    worker = make_worker(queue, **options)
    worker.register("created", lambda _: None)
    queue.publish({"type": "returned"})
    report = worker.run_once()
    assert (report.unhandled, report.claimed) == (1, 1)
    return report, queue.depth()


def test_an_unhandled_message_is_buried_with_its_type(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    report, depth = unhandled(queue, make_worker)

    assert (report.buried, depth.dead) == (1, 1)
    (dead,) = queue.peek(1, state="dead")
    assert isinstance(dead, DeadMessage)
    assert (dead.reason, dead.error_type) == ("unhandled_type", "UnhandledTypeError")
    assert dead.error == "no handler takes type 'returned'"
    assert shown(events) == [("handle", "unhandled", "returned", "UnhandledTypeError")]


def test_an_unhandled_message_can_be_acked_and_is_still_an_event(
    make_queue: MakeQueue, make_worker: MakeWorker
) -> None:
    events: list[QueueEvent] = []
    report, depth = unhandled(make_queue(on_event=events.append), make_worker, on_unhandled="ack")

    assert (report.buried, depth.dead, depth.ready, depth.in_flight) == (0, 0, 0, 0)
    assert shown(events) == [("handle", "unhandled", "returned", "UnhandledTypeError")]


def test_an_unhandled_message_can_wait_for_another_worker_until_its_last_delivery(
    make_queue: MakeQueue, make_worker: MakeWorker
) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append, max_delivery_count=3, retry_backoff=tenacity.wait_none())
    report, depth = unhandled(queue, make_worker, on_unhandled="retry")
    assert (report.buried, depth.ready, depth.dead) == (0, 1, 0)

    other = make_worker(queue, on_unhandled="retry")
    other.register("shipped", lambda _: None)
    assert other.run_once().buried == 0
    assert other.run_once().buried == 1
    assert queue.peek(1, state="dead")[0].reason == "max_delivery_count"
    assert shown(events) == [("handle", "unhandled", "returned", "UnhandledTypeError")] * 3


def test_a_message_without_a_type_is_unhandled_too(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)
    worker.register("created", lambda _: None)
    queue.publish("text")

    assert worker.run_once().unhandled == 1
    assert queue.peek(1, state="dead")[0].error == "no handler takes a message without a type"


def test_an_unhandled_type_is_logged_once(
    queue: Any, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker(queue, concurrency=3)
    worker.register("created", lambda _: None)
    queue.publish_many([{"type": "returned", "n": n} for n in range(3)])

    assert worker.run_once().unhandled == 3
    assert sum("has no handler for type 'returned'" in text for text in caplog.messages) == 1


def test_a_type_has_one_handler(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)
    worker.register("created", print)
    with pytest.raises(ConfigurationError, match="type 'created' has a handler already"):
        worker.register("created", print)
    with pytest.raises(ConfigurationError, match="has a handler already"):
        worker.handler("created")(print)
    worker.set_default_handler(print)
    with pytest.raises(ConfigurationError, match="there is a default handler already"):
        worker.set_default_handler(print)


def test_what_cannot_be_a_handler_is_refused(queue: Any, make_worker: MakeWorker) -> None:
    worker = make_worker(queue)
    for wrong, text in (
        (lambda: None, "takes no payload"),
        (lambda a, b, c: None, "requires 3 arguments"),
        (lambda a, *, shop: None, "requires the keyword 'shop'"),
        (lambda a: (yield a), "is a generator"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            worker.register("created", wrong)
    with pytest.raises(OptionTypeError, match="handler must be a function"):
        worker.register("created", "print")
    with pytest.raises(OptionTypeError, match="the decorator takes the type"):
        worker.handler(print)
    with pytest.raises(OptionTypeError, match="message_type must be a str, not a int"):
        worker.register(7, print)
    with pytest.raises(ConfigurationError, match="message_type is empty"):
        worker.register("", print)
    with pytest.raises(OptionTypeError, match="retry must be a Retry or None, not a int"):
        worker.register("created", print, retry=3)
    with pytest.raises(OptionTypeError, match=r"model must be a pydantic\.BaseModel .* not dict"):
        worker.register("created", print, model=dict)
    with pytest.raises(ConfigurationError, match="max_attempts=11 has no effect"):
        worker.register("created", print, retry=Retry(max_attempts=11))


def shown(events: list[QueueEvent]) -> list[tuple[str, str, str | None, str | None]]:
    """Return the events of handlers."""
    return [
        (str(event.operation), str(event.outcome), event.message_type, event.exception_type)
        for event in events
        if event.operation == "handle"
    ]
