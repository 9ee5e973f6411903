"""`process_message_callback`: a handler called with one payload, and what its result means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.errors import CleanupFailedError, RetryBudgetExhaustedError
from tests.support import state
from tests.support.flavours import Flavour, synchronous

MakeQueue = Callable[..., RedisMessageQueue]


class Boom(Exception):
    pass


@pytest.fixture
def queue(make_queue: MakeQueue) -> RedisMessageQueue:
    return make_queue(message_wait_interval_seconds=0)


def places(client: redis.Redis) -> dict[str, int]:
    found = state.contents(client, "orders").ids()
    return {where: len(messages) for where, messages in found.items() if messages}


def test_true_when_a_message_was_handled_and_false_when_there_was_none(
    queue: RedisMessageQueue, flavour: Flavour, client: redis.Redis
) -> None:
    queue.publish("a")
    seen: list[str | bytes] = []
    assert queue.process_message_callback(seen.append) is True
    assert queue.process_message_callback(seen.append) is False
    assert seen == [flavour.shown(b"a")]
    assert places(client) == {}


def test_what_a_handler_returns_does_not_matter(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab")
    assert queue.process_message_callback(lambda _: False) is True
    assert queue.process_message_callback(lambda _: [1]) is True
    assert places(client) == {}


@pytest.mark.parametrize(("on_error", "where"), [("retry", "delayed"), ("bury", "dead"), ("discard", "")])
def test_what_a_handler_raises_goes_through_and_means_what_on_error_says(
    make_queue: MakeQueue, client: redis.Redis, on_error: str, where: str
) -> None:
    queue = make_queue(on_error=on_error)
    queue.publish("a")

    def handler(_: object) -> None:
        raise Boom

    with pytest.raises(Boom):
        queue.process_message_callback(handler)
    assert places(client) == ({where: 1} if where else {})


def test_an_async_handler_is_awaited_in_the_asyncio_queue_and_refused_in_the_other(
    queue: RedisMessageQueue, client: redis.Redis, flavour: Flavour
) -> None:
    ran: list[str] = []

    async def handler(_: object) -> None:
        ran.append("begin")
        await asyncio.sleep(0)
        ran.append("end")

    queue.publish("a")
    if flavour.asyncio:
        assert queue.process_message_callback(handler) is True
        assert ran == ["begin", "end"]
        assert places(client) == {}
        return
    with pytest.raises(TypeError, match=r"coroutine.*was released.*sluicegate\.asyncio"):
        queue.process_message_callback(handler)
    assert ran == []
    assert places(client) == {"returned": 1}
    assert queue.claim().messages[0].delivery_count == 1


def test_what_an_async_handler_raises_goes_through(
    queue: RedisMessageQueue, client: redis.Redis, flavour: Flavour
) -> None:
    async def handler(_: object) -> None:
        raise Boom

    queue.publish("a")
    with pytest.raises(Boom if flavour.asyncio else TypeError):
        queue.process_message_callback(handler)
    assert places(client) == {"delayed" if flavour.asyncio else "returned": 1}


@pytest.mark.parametrize("kind", ["generator", "async_generator"])
def test_a_generator_is_refused_and_its_message_given_back(
    queue: RedisMessageQueue, client: redis.Redis, kind: str
) -> None:
    def generator(_: object) -> Iterator[int]:
        yield 1

    async def async_generator(_: object) -> AsyncIterator[int]:
        yield 1

    queue.publish("a")
    handler: Any = {"generator": generator, "async_generator": async_generator}[kind]
    with pytest.raises(TypeError, match=f"{kind}.*was released"):
        queue.process_message_callback(handler)
    assert places(client) == {"returned": 1}
    assert queue.claim().messages[0].delivery_count == 1, "not counted: nothing of it has run"


def test_an_ack_that_fails_after_the_handler_is_told_apart_from_the_handlers_own_errors(
    queue: RedisMessageQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryBudgetExhaustedError("away")

    queue.publish("a")
    with monkeypatch.context() as patch, pytest.raises(CleanupFailedError, match="handler finished") as caught:
        queue.process_message_callback(lambda _: patch.setattr(queue.session.runner.gateway, "execute", away))
    assert isinstance(caught.value.__cause__, RetryBudgetExhaustedError)
    assert places(client) == {"in_flight": 1}


def test_a_lost_lease_is_logged_and_told_and_never_raised(
    make_queue: MakeQueue, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[tuple[str, str]] = []
    queue = make_queue(on_event=lambda event: reported.append((event.operation, event.outcome)))
    other = synchronous(queue, client)

    def handler(_: object) -> None:
        state.expire(client, "orders")
        assert len(other.claim()) == 1

    queue.publish("a")
    with caplog.at_level(logging.WARNING, "sluicegate"):
        assert queue.process_message_callback(handler) is True
    assert "no longer held" in caplog.text
    assert reported[-1] == ("settle", "lost")
    assert places(client) == {"in_flight": 1}
