"""Every error of ours says where it happened: the queue, the operation, and the message where it is about one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import (
    AlreadySettledError,
    CleanupFailedError,
    ConfigurationError,
    LeaseLostError,
    LuaScriptError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    PublishUnknownError,
    QueueBackpressureError,
    QueueDrainedError,
    RedisMemoryError,
    RedisMessageQueueError,
    RetryBudgetExhaustedError,
    WrongKeyTypeError,
)
from tests.support import state
from tests.support.servers import free_port

MakeQueue = Callable[..., RedisMessageQueue]


def context(error: RedisMessageQueueError) -> tuple[Any, ...]:
    travelled = pickle.loads(pickle.dumps(error))  # noqa: S301  (made here)
    known = (error.queue, error.operation, error.message_id, error.position)
    assert known == (travelled.queue, travelled.operation, travelled.message_id, travelled.position)
    return known


@pytest.mark.parametrize(
    ("options", "payload", "kind"),
    [
        ({"max_payload_bytes": 2}, "xxx", PayloadTooLargeError),
        ({"max_payload_depth": 1}, {"a": {}}, PayloadTooDeepError),
        ({"get_deduplication_key": "id"}, {"other": 1}, ConfigurationError),
        ({"get_deduplication_key": lambda payload: payload["key"]}, {"key": ""}, ConfigurationError),
    ],
    ids=["too large", "too deep", "no key", "empty key"],
)
def test_a_message_that_is_refused_before_it_is_sent(
    make_queue: MakeQueue, options: dict[str, Any], payload: Any, kind: type[RedisMessageQueueError]
) -> None:
    queue = make_queue(**options)
    with pytest.raises(kind) as caught:
        queue.publish(payload)
    assert context(caught.value) == ("orders", "publish", None, 0)
    fitting = {"id": "1", "key": "1"} if "get_deduplication_key" in options else "x"
    others = [{**fitting, "id": str(n), "key": str(n)} if isinstance(fitting, dict) else fitting for n in range(3)]
    with pytest.raises(kind) as caught:
        queue.publish_many([*others, payload])
    assert context(caught.value) == ("orders", "publish", None, 3)


class ParseError(Exception):
    """An error of the user's own that knows another position."""

    def __init__(self, position: int) -> None:
        super().__init__("unexpected character")
        self.position = position


def shop_of(payload: Any) -> str:
    if payload["shop"] == "broken":
        raise ParseError(41)
    return str(payload["shop"])


@pytest.mark.parametrize(
    ("options", "payload", "kind"),
    [
        ({}, {"when": {1, 2}}, TypeError),
        ({}, 7, TypeError),
        ({}, {"price": float("nan")}, ValueError),
        ({}, {"id": 2**70}, ValueError),
        ({}, "\ud800", ValueError),
        ({"strict_payload_types": True}, {"pair": (1, 2)}, TypeError),
        ({"max_payload_bytes": 90}, "x" * 91, PayloadTooLargeError),
        ({"max_payload_depth": 1}, {"a": {}}, PayloadTooDeepError),
        ({"max_payload_depth": 1}, '{"a": {}}', PayloadTooDeepError),
        ({"get_deduplication_key": "shop"}, {"other": 1}, ConfigurationError),
        ({"get_deduplication_key": "{shop}:{n}"}, {"shop": "a", "n": None}, ConfigurationError),
        ({"get_deduplication_key": ["shop", "n"]}, {"shop": "a", "n": 1.5}, TypeError),
        ({"get_deduplication_key": "{shop}:{n}"}, "text", ConfigurationError),
        ({"get_deduplication_key": "shop"}, {"shop": "x" * 70_000}, PayloadTooLargeError),
        ({"get_deduplication_key": shop_of}, {"shop": ""}, ConfigurationError),
        ({"get_deduplication_key": shop_of}, {}, KeyError),
    ],
    ids=[
        "a set", "no payload", "NaN", "a huge int", "a lone surrogate", "a tuple", "too large", "too deep",
        "too deep JSON", "no field", "a null field", "a float field", "no dict", "a long key", "an empty key",
        "a key function that raises",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 1003])
def test_every_error_about_a_message_has_its_position(
    make_queue: MakeQueue, options: dict[str, Any], payload: Any, kind: type[Exception], before: int
) -> None:
    def given() -> Iterator[Any]:
        for number in range(before):
            yield {"shop": str(number), "n": number}
        yield payload

    queue = make_queue(**options)
    with pytest.raises(kind) as many:
        queue.publish_many(given())
    with pytest.raises(kind) as chunked:
        for _ in queue.publish_chunks(given(), batch_size=500):
            pass
    assert [error.value.position for error in (many, chunked)] == [before, before]  # type: ignore[attr-defined]
    with pytest.raises(kind) as one:
        queue.publish(payload)
    assert one.value.position == 0  # type: ignore[attr-defined]


def test_a_position_of_the_users_own_stays_and_an_input_that_fails_has_none(make_queue: MakeQueue) -> None:
    def reading() -> Iterator[Any]:
        yield {"shop": "a"}
        raise ValueError("cannot read on")

    queue = make_queue(get_deduplication_key=shop_of)
    with pytest.raises(ParseError) as own:
        queue.publish_many([{"shop": "a"}, {"shop": "broken"}])
    assert own.value.position == 41
    with pytest.raises(ValueError, match="cannot read on") as failed:
        queue.publish_many(reading())
    assert not hasattr(failed.value, "position")


def test_a_publish_that_redis_refuses(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(max_pending_length=1)
    queue.publish("x")
    with pytest.raises(QueueBackpressureError) as full:
        queue.publish("x")
    assert context(full.value)[:2] == ("orders", "publish")
    assert full.value.message_id is not None
    client.config_set("maxmemory", "1")
    with pytest.raises(RedisMemoryError) as memory:
        make_queue("other").publish_many(["x", "y"])
    assert context(memory.value) == ("other", "publish", None, None)


def test_a_queue_that_was_closed(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.drain(0)
    with pytest.raises(QueueDrainedError) as caught:
        queue.publish("x")
    assert context(caught.value) == ("orders", "publish", None, None)


@pytest.mark.parametrize("use", ["publish", "claim", "depth", "peek", "stats", "pause"])
def test_a_key_of_another_type(make_queue: MakeQueue, bare_client: redis.Redis, use: str) -> None:
    queue = make_queue()
    for name in ("pending", "counters"):
        bare_client.set(getattr(queue.key, name), "x")
    with pytest.raises(WrongKeyTypeError) as caught:
        getattr(queue, use)(*(["x"] if use == "publish" else []))
    assert context(caught.value)[:2] == ("orders", use)
    bare_client.flushall()


def test_a_lease_that_was_lost(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_many("abc")
    one, two = queue.claim(1), queue.claim(2, lease_id="l")
    state.expire(client, "orders")
    queue.claim(3).ack()
    with pytest.raises(LeaseLostError) as lost:
        one.ack()
    assert context(lost.value) == ("orders", "settle", one.messages[0].id, None)
    with pytest.raises(LeaseLostError) as both:
        two.ack()
    assert context(both.value) == ("orders", "settle", None, None)
    with pytest.raises(LeaseLostError) as late:
        two.extend()
    assert context(late.value)[:2] == ("orders", "extend")


def test_a_second_verdict(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish_many("ab")
    lease = queue.claim(2)
    lease.ack(lease.messages[1])
    with pytest.raises(AlreadySettledError) as caught:
        lease.nack(lease.messages[1])
    assert context(caught.value) == ("orders", "settle", lease.messages[1].id, None)
    lease.ack()


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("ack_and_claim.ack_and_claim_call", {}),
        ("settle.ack_whole_call", {"on_event": lambda _: None}),
    ],
    ids=["the short way", "the usual way"],
)
def test_a_handled_message_that_could_not_be_acked(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, way: str, options: dict[str, Any]
) -> None:
    """An ack goes the short way, in the script that could claim as well, unless something observes it."""
    queue = make_queue(**options)
    queue.publish("x")
    (waiting,) = queue.peek()
    refused = []

    def refuse(*_: Any, **__: Any) -> Any:
        refused.append(way)
        raise RetryBudgetExhaustedError("away")

    with pytest.raises(CleanupFailedError) as caught, queue.process_message():
        monkeypatch.setattr(f"sluicegate.core.transitions.{way}", refuse)
    monkeypatch.undo()
    assert context(caught.value) == ("orders", "settle", waiting.id, None)
    assert isinstance(caught.value.__cause__, RetryBudgetExhaustedError)
    assert refused == [way]


def test_a_publish_whose_outcome_is_unknown(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(retry_budget_seconds=0)
    queue.depth()
    client.config_set("maxmemory", "0")
    away = RedisMessageQueue("orders", url=f"redis://127.0.0.1:{free_port()}/0", retry_budget_seconds=0)
    away.session.runner.gateway._reached = True  # type: ignore[attr-defined]
    with pytest.raises(PublishUnknownError) as caught:
        away.publish("x")
    assert context(caught.value) == ("orders", "publish", caught.value.ids[0], 0)
    with pytest.raises(RetryBudgetExhaustedError) as claim:
        away.claim()
    assert context(claim.value)[:2] == ("orders", "claim")


@pytest.mark.parametrize("kind", [QueueDrainedError, CleanupFailedError, LuaScriptError])
def test_an_error_can_be_made_with_its_context(kind: Callable[..., RedisMessageQueueError]) -> None:
    error = kind("x", queue="orders", operation="publish", message_id="a-0", position=3)
    assert (str(error), *context(error)) == ("x", "orders", "publish", "a-0", 3)
    assert context(kind("x").locate(queue="orders").locate(queue="other", position=0)) == ("orders", None, None, 0)
