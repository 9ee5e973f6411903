"""`on_event`: every transition is reported once, with its outcome and count, whatever the callback does."""

# ruff: noqa: PT012  (the blocks that raise are what is tested)

from __future__ import annotations

import contextvars
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core import scripts
from sluicegate.errors import LeaseLostError, PublishUnknownError, QueueBackpressureError, QueueDrainedError
from sluicegate.events import QueueEvent
from tests.support import state
from tests.support.flavours import Flavour
from tests.support.holding import Holding, holding
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]


class Boom(Exception):
    pass


class Reported(list[QueueEvent]):
    """Events, and what they were since the last look."""

    def since(self) -> list[tuple[str, str, int]]:
        found = [(event.operation.value, event.outcome.value, event.count) for event in self]
        self.clear()
        return found


@pytest.fixture
def reported() -> Reported:
    return Reported()


@pytest.fixture
def queue(make_queue: MakeQueue, reported: Reported) -> RedisMessageQueue:
    return make_queue(on_event=reported.append, message_wait_interval_seconds=0)


# ---------------------------------------------------------------------- transitions


def test_a_message_from_publish_to_ack(queue: RedisMessageQueue, reported: Reported) -> None:
    queue.publish("a")
    lease = queue.claim(lease_id="mine")
    lease.extend()
    lease.ack()
    ids = {event.message_id for event in reported}
    assert ids == {lease.messages[0].id}
    assert [event.lease_id for event in reported] == [None, "mine", "mine", "mine"]
    assert {event.queue for event in reported} == {"orders"}
    assert reported.since() == [
        ("publish", "success", 1),
        ("claim", "success", 1),
        ("extend", "success", 1),
        ("ack", "success", 1),
    ]


def test_one_event_per_call_with_a_count(queue: RedisMessageQueue, reported: Reported) -> None:
    queue.publish_many(str(number) for number in range(2500))
    assert reported.since() == [("publish", "success", 1000), ("publish", "success", 1000), ("publish", "success", 500)]
    lease = queue.claim(2000)
    assert [event.message_id for event in reported] == [None]
    lease.ack(lease.messages[:500])
    lease.ack()
    assert reported.since() == [("claim", "success", 2000), ("ack", "success", 500), ("ack", "success", 1500)]


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_every_verdict_is_told(queue: RedisMessageQueue, reported: Reported, verb: str) -> None:
    queue.publish_many("ab")
    lease = queue.claim(2)
    reported.clear()
    getattr(lease, verb)()
    assert reported.since() == [(verb, "success", 2)]


def test_a_mixture_is_told_by_verb(queue: RedisMessageQueue, reported: Reported) -> None:
    queue.publish_many("abcde")
    reported.clear()
    with pytest.raises(Boom), queue.claim(5) as lease:
        for message in lease:
            if message.text() == "a":
                lease.ack(message)
            if message.text() == "c":
                raise Boom
    assert {event.operation.value: event.exception_type for event in reported} == {
        "claim": None,
        "ack": None,
        "release": None,
        "nack": "Boom",
    }
    assert sorted(reported.since()) == [
        ("ack", "success", 1),
        ("claim", "success", 5),
        ("nack", "success", 1),
        ("release", "success", 3),
    ]


def test_a_message_that_dies_of_its_count_is_told_as_buried(make_queue: MakeQueue, reported: Reported) -> None:
    queue = make_queue(on_event=reported.append, max_delivery_count=1)
    queue.publish("a")
    lease = queue.claim()
    reported.clear()
    lease.nack()
    assert reported.since() == [("bury", "success", 1)]


def test_duplicates_refusals_and_answers_without_messages(make_queue: MakeQueue, reported: Reported) -> None:
    queue = make_queue(on_event=reported.append, get_deduplication_key=str, max_pending_length=2)
    queue.publish_many("aab")
    with pytest.raises(QueueBackpressureError) as refused:
        queue.publish("c")
    assert reported[-1].error is refused.value
    queue.publish_many("cd", partial=True)
    assert reported.since() == [
        ("publish", "success", 2),
        ("publish", "duplicate", 1),
        ("publish", "refused", 1),
        ("publish", "refused", 2),
    ]
    lease = queue.claim(2, lease_id="mine")
    queue.claim(lease_id="mine")
    lease.ack()
    queue.claim(lease_id="mine")
    queue.claim()
    queue.pause()
    queue.claim()
    queue.resume()
    assert reported.since() == [
        ("claim", "success", 2),
        ("claim", "held", 0),
        ("ack", "success", 2),
        ("claim", "duplicate", 2),
        ("claim", "empty", 0),
        ("pause", "success", 0),
        ("claim", "paused", 0),
        ("resume", "success", 0),
    ]


def test_what_comes_back_by_itself(queue: RedisMessageQueue, reported: Reported, client: redis.Redis) -> None:
    queue.publish_many("ab", delay_seconds=60)
    assert [(event.outcome, event.seconds) for event in reported] == [("success", 60)]
    state.fall_due(client, "orders")
    reported.clear()
    queue.claim(2)
    assert reported.since() == [("promote", "success", 2), ("claim", "success", 2)]
    state.expire(client, "orders")
    queue.claim(2, lease_id="next")
    assert reported.since()[0] == ("reap", "success", 2)
    queue.claim(2, lease_id="next", take_over_after_seconds=0)
    assert reported.since() == [("take_over", "success", 1)], "what came back travels in smaller batches"


def test_a_lost_lease_is_told(
    queue: RedisMessageQueue, make_queue: MakeQueue, reported: Reported, client: redis.Redis
) -> None:
    queue.publish_many("ab")
    lease = queue.claim(2)
    state.expire(client, "orders")
    make_queue().claim(2)
    reported.clear()
    with pytest.raises(LeaseLostError):
        lease.ack()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert reported.since() == [("settle", "lost", 2), ("extend", "lost", 0)]


def test_what_administers_is_told(make_queue: MakeQueue, reported: Reported) -> None:
    queue = make_queue(on_event=reported.append, get_deduplication_key=str)
    report = queue.publish_many("abcd")
    queue.claim(2).bury()
    reported.clear()
    queue.redrive(limit=1)
    queue.purge("dead")
    queue.cancel([report.ids[2]])
    queue.forget("d")
    assert reported.since() == [
        ("redrive", "success", 1),
        ("purge", "success", 1),
        ("cancel", "success", 1),
        ("forget", "success", 1),
    ]


def test_an_event_about_one_message_has_its_delivery_count(queue: RedisMessageQueue, reported: Reported) -> None:
    published = queue.publish_many("abc")
    queue.claim(lease_id="first").nack()
    reported.clear()
    first = queue.claim()
    first.extend()
    first.bury(error="x")
    lease = queue.claim(2)
    lease.ack(lease.messages[1])
    lease.ack()
    assert [(event.operation.value, event.count, event.message_id, event.delivery_count) for event in reported] == [
        ("claim", 1, published.ids[0], 2),
        ("extend", 1, published.ids[0], 2),
        ("bury", 1, published.ids[0], 2),
        ("claim", 2, None, None),
        ("ack", 1, published.ids[2], 1),
        ("ack", 1, published.ids[1], 1),
    ]


def test_a_takeover_counts_as_a_delivery_in_its_event(queue: RedisMessageQueue, reported: Reported) -> None:
    queue.publish("a")
    queue.claim(lease_id="mine")
    queue.claim(lease_id="mine", take_over_after_seconds=0).ack()
    assert [(event.operation.value, event.delivery_count) for event in reported] == [
        ("publish", None),
        ("claim", 1),
        ("take_over", 2),
        ("ack", 2),
    ]


def test_every_event_tells_how_long_its_call_has_taken(
    make_queue: MakeQueue, reported: Reported, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()  # one passes between two looks at the clock
    module = "sluicegate.asyncio.operation_runner" if flavour.asyncio else "sluicegate.operation_runner"
    monkeypatch.setattr(f"{module}.elapsed_clock", lambda: next(seconds))
    queue = make_queue(on_event=reported.append, get_deduplication_key=str)
    queue.depth()  # creates the group, if it is one
    queue.publish_many("aab")
    queue.claim(2).ack()
    queue.forget("a")
    assert [(event.operation.value, event.outcome.value, event.duration_seconds) for event in reported] == [
        ("publish", "success", 1),
        ("publish", "duplicate", 2),
        ("claim", "success", 1),
        ("ack", "success", 1),
        ("forget", "success", 1),
    ]


# ---------------------------------------------------------------------- refused before anything is sent


def missing(_: object) -> str:
    raise Boom("secret")


REFUSED: dict[str, tuple[dict[str, Any], Callable[[RedisMessageQueue], Any]]] = {
    "type": ({}, lambda queue: queue.publish(42)),
    "field of a type": ({}, lambda queue: queue.publish({"secret": object()})),
    "size": ({"max_payload_bytes": 3}, lambda queue: queue.publish("secret")),
    "depth": ({"max_payload_depth": 1}, lambda queue: queue.publish([["secret"]])),
    "key function": ({"get_deduplication_key": missing}, lambda queue: queue.publish("secret")),
    "missing key": ({"get_deduplication_key": "id"}, lambda queue: queue.publish({"secret": 1})),
    "headers": ({}, lambda queue: queue.publish("secret", headers={"a": 1})),  # type: ignore[dict-item]
    "delay": ({}, lambda queue: queue.publish("secret", delay_seconds=-1)),
    "durability": ({}, lambda queue: queue.publish("secret", durability="stone")),
    "one of many": ({}, lambda queue: queue.publish_many(["secret", 42])),
    "one of a chunk": ({}, lambda queue: list(queue.publish_chunks(["secret", 42]))),
    "an input that fails": ({}, lambda queue: queue.publish_many(missing(number) for number in range(3))),
}


@pytest.mark.parametrize(("options", "publish"), REFUSED.values(), ids=REFUSED)
def test_a_publish_that_is_refused_before_redis_is_asked_is_told(
    make_queue: MakeQueue,
    client: redis.Redis,
    reported: Reported,
    options: dict[str, Any],
    publish: Callable[[RedisMessageQueue], Any],
) -> None:
    queue = make_queue(on_event=reported.append, **options)
    with pytest.raises((TypeError, ValueError, Boom)) as caught:
        publish(queue)
    (event,) = reported
    assert reported.since() == [("publish", "failure", 1)]
    assert event.error is caught.value
    assert event.queue == "orders"
    assert event.duration_seconds is not None
    assert "secret" not in repr(event)
    assert client.dbsize() == 0


PUBLISHES: dict[str, Callable[[RedisMessageQueue], Any]] = {
    "publish": lambda queue: queue.publish("a"),
    "publish_many": lambda queue: queue.publish_many("ab"),
    "publish_chunks": lambda queue: list(queue.publish_chunks("ab")),
}


@pytest.mark.parametrize("way", PUBLISHES)
@pytest.mark.parametrize("stop", [lambda queue: queue.drain(0), lambda queue: queue.close()], ids=["drain", "close"])
def test_a_publish_of_a_stopped_queue_is_told(
    queue: RedisMessageQueue, reported: Reported, way: str, stop: Callable[[RedisMessageQueue], Any]
) -> None:
    stop(queue)
    reported.clear()
    with pytest.raises(QueueDrainedError) as caught:
        PUBLISHES[way](queue)
    assert [event.error for event in reported] == [caught.value]
    assert reported.since() == [("publish", "failure", 1)]


def test_what_was_published_before_the_refusal_is_told_before_it(queue: RedisMessageQueue, reported: Reported) -> None:
    with pytest.raises(TypeError):
        queue.publish_many([*("a" * 1000), 42])
    assert reported.since() == [("publish", "success", 1000), ("publish", "failure", 1)]


def test_a_publish_that_cannot_be_asked_for_again_is_told(queue: RedisMessageQueue, reported: Reported) -> None:
    unknown = PublishUnknownError("too late", ids=["x"])
    with pytest.raises(PublishUnknownError):
        queue.publish_again(unknown)
    assert [event.error for event in reported] == [unknown]
    assert reported.since() == [("publish", "failure", 1)]


# ---------------------------------------------------------------------- faults


@pytest.fixture
def proxy(server: RedisServer, client: redis.Redis) -> Iterator[Holding]:
    for name in scripts.NAMES:
        client.script_load(scripts.load(name).text.decode())
    with holding(server.socket) as made:
        yield made


@pytest.mark.parametrize("script", ["publish", "claim", "settle", "extend"])
def test_a_retry_is_told_and_counts_nothing(
    make_queue: MakeQueue, reported: Reported, proxy: Holding, script: str
) -> None:
    queue = make_queue(url=proxy.url, on_event=reported.append)
    queue.depth()
    lost = proxy.hold(script, "reply")
    lost.drop()
    queue.publish("a")
    with queue.claim() as lease:
        lease.extend()
    assert lost.reached.is_set()
    (retry,) = [event for event in reported if event.outcome == "retry"]
    assert (retry.operation, retry.count, retry.attempt) == (script, 0, 1)
    assert retry.seconds is not None
    assert retry.seconds < 1
    assert retry.duration_seconds is not None
    assert retry.exception_type == type(retry.error).__name__
    assert [event for event in reported.since() if event[1] != "retry"] == [
        ("publish", "success", 1),
        ("claim", "success", 1),
        ("extend", "success", 1),
        ("ack", "success", 1),
    ]


def test_a_failure_is_told_with_an_error_that_its_repr_does_not_show(
    make_queue: MakeQueue, reported: Reported, proxy: Holding
) -> None:
    queue = make_queue(url=proxy.url, on_event=reported.append, retry_budget_seconds=0)
    queue.depth()
    proxy.hold("publish_to_stream" if queue.session.keys.group else "publish", "reply").drop()
    with pytest.raises(PublishUnknownError) as caught:
        queue.publish("secret")
    (event,) = reported
    assert reported.since() == [("publish", "failure", 1)]
    assert event.error is caught.value
    assert event.exception_type == "PublishUnknownError"
    assert str(caught.value) not in repr(event)
    assert "error" not in repr(event)
    assert event == QueueEvent(event.operation, event.outcome, "orders", 1, message_id=event.message_id)


# ---------------------------------------------------------------------- the callback


def use_all(queue: RedisMessageQueue) -> None:
    """Most of what a queue can do, through to its end."""
    assert queue.publish("a")
    assert queue.publish_many("bc").accepted == 2
    with queue.claim() as lease:
        lease.extend()
    with pytest.raises(Boom), queue.process_message() as payload:
        assert payload in (b"b", "b")
        raise Boom
    queue.claim().bury()
    assert queue.redrive().redriven == 1
    assert queue.purge("returned" if queue.session.keys.group else "pending") == 1
    assert queue.drain(1) is True


@pytest.mark.filterwarnings("ignore:on_event raised:RuntimeWarning")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_callback_that_raises_alters_nothing(
    make_queue: MakeQueue, client: redis.Redis, flavour: Flavour, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def on_event(event: QueueEvent) -> None:
        calls.append(event)
        raise Boom("secret")

    async def on_event_async(event: QueueEvent) -> None:
        on_event(event)

    use_all(make_queue(on_event=on_event_async if asynchronous and flavour.asyncio else on_event))
    assert len(calls) > 10
    assert "on_event raised Boom" in caplog.text
    assert "secret" not in caplog.text
    found = state.contents(client, "orders").ids()
    assert {where: len(messages) for where, messages in found.items() if messages} == {"delayed": 1}


def test_an_awaitable_from_a_callback_of_a_sync_queue_is_warned_about(make_queue: MakeQueue, flavour: Flavour) -> None:
    ran = []

    async def note(event: QueueEvent) -> None:
        ran.append(event.operation)

    def on_event(event: QueueEvent) -> Any:
        return note(event)

    queue = make_queue(on_event=on_event)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        queue.publish("a")
    assert ran == (["publish"] if flavour.asyncio else [])
    texts = [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]
    assert ["returned an awaitable" in text for text in texts] == ([] if flavour.asyncio else [True])


@pytest.mark.parametrize("what", ["publish", "claim", "stats", "forget", "drain", "close"])
def test_a_callback_may_use_the_queue(make_queue: MakeQueue, client: redis.Redis, flavour: Flavour, what: str) -> None:
    busy, answers = [], []
    arguments: dict[str, tuple[Any, ...]] = {"publish": ("again",), "forget": ("k",), "drain": (0.2,)}

    def begins(event: QueueEvent) -> bool:
        return not busy and event.operation in ("claim", "extend", "ack")

    def use() -> Any:
        inner = vars(queue).get("_target", queue)
        name = "aclose" if what == "close" and flavour.asyncio else what
        return getattr(inner, name)(*arguments.get(what, ()))

    def on_event(event: QueueEvent) -> None:
        if begins(event):
            busy.append(event)
            answers.append(use())
            busy.clear()

    async def on_event_async(event: QueueEvent) -> None:
        if begins(event):
            busy.append(event)
            answers.append(await use())
            busy.clear()

    queue = make_queue(on_event=on_event_async if flavour.asyncio else on_event)
    queue.publish_many("ab")
    lease = queue.claim(1)
    if what in ("drain", "close"):  # the shutdown began while the claim was reported, so the late messages are released
        assert not lease
        assert queue.depth().ready == 2
        return
    lease.extend()
    lease.ack()
    assert len(answers) == 3
    assert lease.counts.acked == 1
    expected = {"publish": (4, 0), "claim": (0, 1)}.get(what, (1, 0))
    assert (queue.depth().pending, queue.depth().in_flight) == expected


def test_a_callback_may_settle_the_lease_that_it_is_told_of(
    make_queue: MakeQueue, client: redis.Redis, flavour: Flavour
) -> None:
    leases: list[Any] = []

    def wants(event: QueueEvent) -> bool:
        return event.operation == "extend"

    def on_event(event: QueueEvent) -> None:
        if wants(event):
            leases[0].ack()

    async def on_event_async(event: QueueEvent) -> None:
        if wants(event):
            await leases[0].ack()

    queue = make_queue(on_event=on_event_async if flavour.asyncio else on_event)
    queue.publish("a")
    lease = queue.claim()
    leases.append(vars(lease).get("_target", lease))
    lease.extend()
    assert lease.counts.acked == 1
    lease.ack()
    assert state.counters(client, "orders")["acked"] == 1


# ---------------------------------------------------------------------- heartbeats

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


def test_heartbeats_are_told_in_a_copy_of_the_claimers_context(
    make_queue: MakeQueue, flavour: Flavour, client: redis.Redis
) -> None:
    seen: list[tuple[str, int]] = []
    beaten = threading.Event()

    def on_event(event: QueueEvent) -> None:
        if event.operation == "extend":
            seen.append((request_id.get(), threading.get_ident()))
            request_id.set("spoilt")
            if len(seen) == 2:
                beaten.set()

    queue = make_queue(on_event=on_event, visibility_timeout_seconds=60)
    queue.publish("a")
    lease = queue.claim(heartbeat=False)
    token = request_id.set("r-1")
    try:
        if flavour.asyncio:  # the context of the task that begins it
            target = vars(lease)["_target"]
            contextvars.copy_context().run(vars(lease)["_loop_of"].run, lambda: _begin(target))
        else:
            lease.start_heartbeat(0.02)
        wait_until(beaten.is_set, "two heartbeats")
        lease.stop_heartbeat()
        assert request_id.get() == "r-1"
    finally:
        request_id.reset(token)
    assert [context for context, _ in seen[:2]] == ["r-1", "r-1"], "each has a copy of its own"
    if not flavour.asyncio:
        assert seen[0][1] != threading.get_ident()


def _begin(lease: Any) -> None:
    request_id.set("r-1")
    lease.start_heartbeat(0.02)
