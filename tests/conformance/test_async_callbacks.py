"""Async callbacks: awaited by the asyncio queue, refused by the one for threads as soon as that can be known."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.errors import ConfigurationError, OptionTypeError
from tests.support import state
from tests.support.flavours import Flavour

MakeQueue = Callable[..., RedisMessageQueue]
URL = "redis://127.0.0.1:1/0"


async def function(payload: Any = None) -> str:
    await asyncio.sleep(0)
    return str(payload["id"])


async def with_more(more: str, payload: Any = None) -> str:
    return f"{more}{payload['id']}"


class Callback:
    async def __call__(self, payload: Any = None) -> str:
        return await function(payload)

    async def method(self, payload: Any = None) -> str:
        return await function(payload)


def later(payload: Any = None) -> Awaitable[str]:
    """Not async, but what it returns is to be awaited."""
    return function(payload)


def future(payload: Any) -> Awaitable[str]:
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    made.set_result(str(payload["id"]))
    return made


def undeclared(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the same function in a form that does not show that it is async."""

    def call(argument: Any) -> Any:
        return callback(argument)

    return call


KNOWN = [
    function,
    functools.partial(with_more, ""),
    functools.partial(functools.partial(Callback())),
    Callback(),
    Callback().method,
]


@pytest.mark.parametrize("callback", KNOWN, ids=["function", "partial", "partial-object", "object", "method"])
@pytest.mark.parametrize("option", ["get_deduplication_key", "on_event", "on_heartbeat_failure"])
def test_an_async_callback_fits_the_asyncio_queue_only(option: str, callback: Any) -> None:
    options: dict[str, Any] = {option: callback, "heartbeat_interval_seconds": 10}
    with pytest.raises(OptionTypeError, match=rf"{option} is async.*use sluicegate\.asyncio\.RedisMessageQueue"):
        RedisMessageQueue("orders", url=URL, **options)
    AsyncQueue("orders", url=URL, **options)


@pytest.mark.parametrize("callback", [str, repr, functools.partial(str), lambda _: "k", later, "id", ["a", "b"]])
def test_what_is_not_known_to_be_async_is_taken_by_both(callback: Any) -> None:
    for kind in (RedisMessageQueue, AsyncQueue):
        kind("orders", url=URL, get_deduplication_key=callback)


@pytest.mark.parametrize("key", [*KNOWN, later, future])
def test_keys_are_awaited_in_order_and_once_per_message(make_queue: MakeQueue, flavour: Flavour, key: Any) -> None:
    if not flavour.asyncio:  # the refusal above is all there is to see
        with pytest.raises((ConfigurationError, TypeError, RuntimeError)):
            make_queue(get_deduplication_key=key).publish({"id": 1})
        return
    asked = []

    def counted(payload: Any) -> Any:
        asked.append(payload["id"])
        return key(payload)

    queue = make_queue(get_deduplication_key=counted)
    assert queue.publish({"id": 1}) is True
    assert queue.publish({"id": 1}) is False
    report = queue.publish_many({"id": number} for number in (1, 2, 3, 2))
    assert report.duplicate_of == [report.duplicate_of[0], None, None, report.ids[1]]
    assert [report.accepted for report in queue.publish_chunks([{"id": 4}, {"id": 5}, {"id": 4}], batch_size=2)] == [
        2,
        0,
    ]
    assert asked == [1, 1, 1, 2, 3, 2, 4, 5, 4]
    assert [message.deduplication_key for message in queue.peek()] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("made", "error"), [(None, ConfigurationError), ("", ConfigurationError), (7, TypeError)])
def test_an_awaited_key_is_checked(make_queue: MakeQueue, flavour: Flavour, made: Any, error: type[Exception]) -> None:
    async def give(_: Any) -> Any:
        return made

    with pytest.raises(error if flavour.asyncio else TypeError):
        make_queue(get_deduplication_key=undeclared(give)).publish("x")


def test_an_error_of_an_awaited_key_stops_its_call_and_leaves_the_connection_usable(
    make_queue: MakeQueue, flavour: Flavour, client: redis.Redis
) -> None:
    async def give(payload: Any) -> str:
        await asyncio.sleep(0)
        if payload["id"] == 1500:
            raise LookupError("no such tenant")
        return str(payload["id"])

    queue = make_queue(get_deduplication_key=undeclared(give))
    with pytest.raises(LookupError if flavour.asyncio else TypeError) as caught:
        queue.publish_many({"id": number} for number in range(2000))
    before = 1000 if flavour.asyncio else 0
    assert f"{before} messages before these were handled" in caught.value.__notes__[0]
    assert caught.value.position == (1500 if flavour.asyncio else 0)  # type: ignore[attr-defined]
    assert len(state.contents(client, "orders").pending) == queue.depth().pending == before


def test_an_awaitable_key_in_a_queue_for_threads_is_closed_and_explained() -> None:
    started = []

    def give(payload: Any) -> Any:
        started.append(function(payload))
        return started[-1]

    queue = RedisMessageQueue("orders", url=URL, get_deduplication_key=give)
    with pytest.raises(TypeError, match=r"nobody awaits here; give a plain function, or use sluicegate\.asyncio"):
        queue.publish({"id": 1})
    assert started[0].cr_frame is None, "closed, so that nothing warns that it was never awaited"
