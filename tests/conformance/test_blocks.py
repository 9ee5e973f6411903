"""`with` blocks and `process_message`: what leaving them means, however they are left."""

# ruff: noqa: PT012  (the blocks that raise are what is tested)

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import Lease, RedisMessageQueue
from sluicegate.errors import AlreadySettledError, LeaseLostError
from tests.support import state
from tests.support.flavours import Flavour
from tests.support.servers import RedisServer
from tests.support.settings import UNIX_SPEAKS_RESP3

MakeQueue = Callable[..., RedisMessageQueue]


class Boom(Exception):
    pass


class Stop(BaseException):
    pass


@pytest.fixture
def lease(queue: RedisMessageQueue) -> Lease:
    queue.publish_many("abcde")
    return queue.claim(5)


def found(queue: RedisMessageQueue) -> dict[str, str]:
    """Return the message names by state; those whose delivery was not counted are capitals."""

    def letters(where: Any) -> str:
        messages = queue.peek(100, state=where)
        return "".join(m.text().upper() if m.delivery_count == 0 else m.text() for m in messages)

    places = {where: letters(where) for where in ("returned", "delayed")}
    return {where: text for where, text in places.items() if text}


def test_a_block_that_raises_nacks_the_message_in_hand(lease: Lease, queue: RedisMessageQueue) -> None:
    with pytest.raises(Boom), lease:
        for message in lease:
            if message.text() == "c":
                raise Boom("spoilt")
    assert found(queue) == {"returned": "ABDE", "delayed": "c"}
    assert (lease.counts.acked, lease.counts.returned) == (0, 5)
    assert not lease.lost


def test_the_error_is_kept(make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=1)
    queue.publish("a")
    with pytest.raises(Boom), queue.claim(1) as lease:
        for _ in lease:
            raise Boom("spoilt")
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("max_delivery_count", "Boom", "spoilt")
    assert lease.counts.buried == 1


def test_what_was_yielded_before_may_be_acked(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcde")
    with pytest.raises(Boom), queue.claim(5, on_batch_error="ack") as lease:
        for message in lease:
            if message.text() == "c":
                raise Boom
    assert found(queue) == {"returned": "DE", "delayed": "c"}
    assert lease.counts.acked == 2


def test_verdicts_given_inside_the_block_stand(lease: Lease, queue: RedisMessageQueue) -> None:
    with pytest.raises(Boom), lease:
        for message in lease:
            match message.text():
                case "a":
                    lease.ack(message)
                case "b":
                    lease.bury(message)
                case "c":
                    lease.nack(message)
                    raise Boom
    assert found(queue) == {"returned": "cDE"}
    assert (lease.counts.acked, lease.counts.returned, lease.counts.buried) == (1, 3, 1)


def test_a_block_that_took_the_batch_whole_fails_whole(lease: Lease, queue: RedisMessageQueue) -> None:
    with pytest.raises(Boom), lease:
        _ = [message.text() for message in lease.messages]
        raise Boom
    assert found(queue) == {"delayed": "abcde"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Stop])
def test_a_shutdown_releases_everything(lease: Lease, queue: RedisMessageQueue, error: type[BaseException]) -> None:
    with pytest.raises(error), lease:
        for message in lease:
            if message.text() == "a":
                lease.ack(message)
            if message.text() == "c":
                raise error
    assert found(queue) == {"returned": "BCDE"}
    assert lease.counts.acked == 1


def test_a_lost_lease_is_raised_when_a_block_ends_well(
    lease: Lease, client: redis.Redis, queue: RedisMessageQueue
) -> None:
    with pytest.raises(LeaseLostError), lease:
        state.expire(client, "orders")
        queue.claim(1).ack()
    assert lease.lost


def test_a_lost_lease_does_not_hide_the_error(
    lease: Lease, client: redis.Redis, queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Boom), lease:
        state.expire(client, "orders")
        queue.claim(1).ack()
        raise Boom
    assert "could not be settled after its block failed" in caplog.text


def test_messages_of_another_lease_are_refused(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    with (
        queue.claim() as one,
        queue.claim() as other,
        pytest.raises(AlreadySettledError, match="not a message of lease"),
    ):
        one.ack(other.messages[0])


# ---------------------------------------------------------------------- process_message


def test_one_message_is_yielded_and_acked(queue: RedisMessageQueue, flavour: Flavour) -> None:
    queue.publish({"n": 1})
    with queue.process_message() as payload:
        assert payload == flavour.shown(b'{"n":1}')
        assert queue.depth().in_flight == 1
    assert (queue.depth().ready, queue.depth().in_flight, queue.depth().dead) == (0, 0, 0)


def test_none_when_nothing_came_in_time(make_queue: MakeQueue) -> None:
    with make_queue(message_wait_interval_seconds=0).process_message() as payload:
        assert payload is None
    with make_queue(message_wait_interval_seconds=0.05).process_message() as payload:
        assert payload is None


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_clients_decoding_decides_what_a_handler_gets(
    server: RedisServer, make_queue: MakeQueue, flavour: Flavour, protocol: int
) -> None:
    if not (flavour.asyncio or UNIX_SPEAKS_RESP3):
        protocol = 2
    with server.client(protocol=protocol) as client:
        queue = make_queue(client=client, get_deduplication_key=str)
        queue.publish_many(["Zoë", b"\xff\xfe"])
        assert queue.publish("Zoë") is False
        with queue.process_message() as payload:
            assert payload == flavour.shown("Zoë".encode())
        with queue.process_message() as payload:
            assert payload == b"\xff\xfe", "bytes that are no text stay bytes"
        queue.publish("dead")
        queue.claim().bury(error="why")
        assert queue.peek(state="dead")[0].error == "why"
        assert queue.depth().dead == 1
        assert queue.claim(wait_seconds=0.05).messages == []


def test_an_exception_nacks_with_a_growing_delay(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    for least, most in ((1, 2), (2, 3), (4, 5)):
        with pytest.raises(Boom), queue.process_message():
            raise Boom
        (_, due), *_ = client.zrange(queue.session.keys.delayed, 0, -1, withscores=True)
        seconds, microseconds = client.time()
        assert least - 0.5 < due / 1000 - seconds - microseconds / 1e6 <= most
        state.fall_due(client, "orders")
    assert queue.claim().messages[0].delivery_count == 4


def test_a_shutdown_releases_the_message(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    with pytest.raises(KeyboardInterrupt), queue.process_message():
        raise KeyboardInterrupt
    assert found(queue) == {"returned": "A"}


def test_a_lost_lease_is_logged_and_never_raised(
    queue: RedisMessageQueue, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue.publish("a")
    with caplog.at_level(logging.WARNING, "sluicegate"), queue.process_message():
        state.expire(client, "orders")
        other = queue.claim()
    assert "no longer held" in caplog.text
    assert other.messages[0].delivery_count == 2


def test_a_lost_lease_of_the_handlers_own_is_raised(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab")
    with pytest.raises(LeaseLostError) as caught, queue.process_message():
        own = queue.claim(lease_id="own")
        state.expire(client, "orders", "own")
        queue.claim(1).ack()
        own.ack()
    assert caught.value.lease_id == "own"


def test_a_handler_that_catches_everything_still_leaves_its_message_acked(
    queue: RedisMessageQueue, client: redis.Redis
) -> None:
    queue.publish("a")
    with queue.process_message():
        pass
    assert state.counters(client, "orders")["acked"] == 1


def test_a_failed_ack_can_be_sent_again(lease: Lease, monkeypatch: pytest.MonkeyPatch, client: redis.Redis) -> None:
    """A whole-lease ack that never reached Redis must not look done when it is asked for again."""
    gateway = lease._session.runner.gateway
    with monkeypatch.context() as patch:
        patch.setattr(gateway, "execute", _unreachable)
        with pytest.raises(ConnectionError):
            lease.ack()
    assert lease.counts.acked == 0
    lease.ack()
    assert lease.counts.acked == 5
    assert client.zcard(lease._session.keys.leases) == 0


def test_a_block_acks_again_what_was_not_confirmed(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease:
        with monkeypatch.context() as patch:
            patch.setattr(lease._session.runner.gateway, "execute", _unreachable)
            with pytest.raises(ConnectionError):
                lease.ack(lease.messages[0])
        assert lease.counts.acked == 0
    assert lease.counts.acked == 5


def _unreachable(*_: object, **__: object) -> None:
    raise ConnectionError


@pytest.mark.parametrize("answer", [None, "x", float("nan"), 1e18, Boom("of the strategy")], ids=str)
def test_a_backoff_that_does_not_work_hides_no_error(make_queue: MakeQueue, answer: Any) -> None:
    def backoff(_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    queue = make_queue(retry_backoff=backoff)
    queue.publish("a")
    with pytest.raises(LookupError, match="the handler's"), queue.process_message():
        raise LookupError("the handler's")
    assert (queue.depth().delayed, queue.depth().in_flight) == (1, 0)
    assert queue.peek(state="delayed")[0].delivery_count == 1


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, RuntimeError, GeneratorExit])
def test_an_error_goes_through_as_it_is(queue: RedisMessageQueue, kind: type[BaseException]) -> None:
    queue.publish("a")
    error = kind("a")
    with pytest.raises(kind) as caught, queue.process_message():
        raise error
    assert caught.value is error
    depth = queue.depth()
    assert (depth.delayed, depth.returned) == ((1, 0) if isinstance(error, Exception) else (0, 1))
