"""What is cancelled or interrupted, wherever it is: that goes through, and no message is left between two states."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.core import scripts
from sluicegate.core.keys import QueueKeys
from sluicegate.events import QueueEvent
from tests.support import state
from tests.support.holding import Held, Holding, Point, holding
from tests.support.servers import RedisServer
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

Use = Callable[[AsyncQueue], Awaitable[Any]]
POINTS: tuple[Point, ...] = ("request", "reply")
LEASE = {"visibility_timeout_seconds": 300}


@pytest.fixture
def proxy(server: RedisServer, client: redis.Redis) -> Iterator[Holding]:
    for name in scripts.NAMES:  # an EVAL would not be recognised
        client.script_load(scripts.load(name).text.decode())
    with holding(server.socket) as made:
        yield made


def run(proxy: Holding, test: Callable[[AsyncQueue], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a test with a queue behind the proxy that has met its server."""

    async def main() -> None:
        queue = AsyncQueue("orders", url=proxy.url, retry_budget_seconds=20, **options)
        await queue.depth()
        try:
            await test(queue)
        finally:
            await queue.aclose()

    asyncio.run(asyncio.wait_for(main(), 60))


async def reached(held: Held) -> None:
    assert await asyncio.to_thread(held.reached.wait, 20), "the script was never sent"


async def cancelled(held: Held, use: Awaitable[Any], *, late: bool = False) -> None:
    """Cancel a use once its script is stopped; `late` passes the script to the server afterwards."""
    task = asyncio.ensure_future(use)
    await reached(held)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=60)
    assert done, "a cancellation must end it"
    assert task.cancelled()
    if late:
        held.go()
    else:
        held.drop()


def places(client: redis.Redis) -> dict[str, int]:
    found = {where: len(values) for where, values in state.contents(client, "orders").ids().items()}
    return {where: count for where, count in found.items() if count}


def deliveries(queue: RedisMessageQueue) -> list[int]:
    return [message.delivery_count for message in queue.claim(100).messages]


# ---------------------------------------------------------------------- publish


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_cancelled_publish_stored_all_or_nothing(
    proxy: Holding, client: redis.Redis, point: Point, many: bool
) -> None:
    async def test(queue: AsyncQueue) -> None:
        held = proxy.hold("publish", point)
        await cancelled(held, queue.publish_many("abc") if many else queue.publish("a"))
        assert await queue.publish("next")

    run(proxy, test)
    stored = 0 if point == "request" else 3 if many else 1
    assert places(client) == {"pending": stored + 1}
    assert state.counters(client, "orders")["published"] == stored + 1


def test_a_cancelled_publish_of_many_keeps_the_calls_before(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        first = proxy.hold("publish", "reply")
        task = asyncio.ensure_future(queue.publish_many(str(number) for number in range(2500)))
        await reached(first)
        second = proxy.hold("publish", "request")
        first.go()
        await cancelled(second, task)

    run(proxy, test)
    assert places(client) == {"pending": 1000}


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_publish_holds_its_key_only_if_it_is_stored(
    proxy: Holding, client: redis.Redis, point: Point
) -> None:
    async def test(queue: AsyncQueue) -> None:
        await cancelled(proxy.hold("publish", point), queue.publish("a"))
        assert await queue.publish("a") is (point == "request")

    run(proxy, test, get_deduplication_key=str)
    assert places(client) == {"pending": 1}


# ---------------------------------------------------------------------- claim


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("lease_id", [None, "mine"])
def test_a_cancelled_claim_holds_nothing(
    proxy: Holding, client: redis.Redis, point: Point, lease_id: str | None
) -> None:
    reported: list[QueueEvent] = []

    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("abc")
        reported.clear()
        await cancelled(proxy.hold("claim", point), queue.claim(2, lease_id=lease_id))
        assert places(client) == ({"pending": 3} if point == "request" else {"pending": 1, "returned": 2})
        assert client.exists(QueueKeys("orders").wakeup)
        again = await queue.claim(3, lease_id=lease_id)
        assert [(message.text(), message.delivery_count) for message in again] == [("a", 1), ("b", 1), ("c", 1)]

    run(proxy, test, on_event=reported.append, **LEASE)
    if point == "reply":
        assert [(event.operation, event.outcome, event.count) for event in reported][:1] == [("release", "success", 2)]


def test_a_cancelled_claim_that_arrives_late_takes_nothing(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("abc")
        calls = calls_of(client, "evalsha")
        await cancelled(proxy.hold("claim", "request"), queue.claim(2, lease_id="mine"), late=True)
        wait_until(lambda: calls_of(client, "evalsha") == calls + 2, "the late claim is executed")
        assert places(client) == {"pending": 3}
        assert len(await queue.claim(3, lease_id="mine")) == 3

    run(proxy, test)


def calls_of(client: redis.Redis, command: str) -> int:
    calls: int = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
    return calls


def test_a_cancelled_takeover_gives_back_what_it_took_and_only_that(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("ab")
        owner = await queue.claim(2, lease_id="mine")
        await cancelled(proxy.hold("claim", "reply"), queue.claim(2, lease_id="mine", take_over_after_seconds=0))
        assert not owner.lost
        assert places(client) == {"in_flight": 2}, "stopped before the takeover itself, the lease stays its owner's"
        await owner.release()

    run(proxy, test)


def test_a_takeover_that_was_done_when_its_cancellation_came_is_undone(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("ab")
        await queue.claim(2, lease_id="mine")
        first = proxy.hold("claim", "reply")
        task = asyncio.ensure_future(queue.claim(2, lease_id="mine", take_over_after_seconds=0))
        await reached(first)
        second = proxy.hold("claim", "reply")
        first.go()
        await cancelled(second, task)
        assert places(client) == {"returned": 2}

    run(proxy, test)


def test_a_cancelled_wait_ends_at_once_and_wakes_another(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        task = asyncio.ensure_future(queue.claim(wait_seconds=60))
        while not client.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.002)
        client.rpush(QueueKeys("orders").pending, *entries(client))
        begun = time.monotonic()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        assert client.exists(QueueKeys("orders").wakeup), "it may have taken the token of another"

    run(proxy, test)
    assert places(client) == {"pending": 1}


def entries(client: redis.Redis) -> list[bytes]:
    """Return a message for which no consumer was woken."""
    made = RedisMessageQueue("other", client=client)
    made.publish("a")
    key = QueueKeys("other").pending
    found: list[bytes] = client.lrange(key, 0, -1)
    client.delete(key, QueueKeys("other").wakeup)
    return found


def test_a_cancelled_event_callback_leaves_no_lease_behind(proxy: Holding, client: redis.Redis) -> None:
    at_it = asyncio.Event()

    async def slow(event: QueueEvent) -> None:
        if event.operation == "claim":
            at_it.set()
            await asyncio.sleep(60)

    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        task = asyncio.ensure_future(queue.claim())
        await at_it.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert places(client) == {"returned": 1}

    run(proxy, test, on_event=slow)


@pytest.mark.parametrize("cancels", range(12))
def test_a_claim_cancelled_at_any_step_of_the_loop_holds_nothing(
    proxy: Holding, client: redis.Redis, cancels: int
) -> None:
    """As `asyncio.wait_for` does: after so many turns of the loop, whatever the claim is doing then."""

    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("abc")
        task = asyncio.ensure_future(queue.claim(3))
        for _ in range(cancels):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            assert "in_flight" not in places(client)
        else:
            assert len(task.result()) == 3

    run(proxy, test)


def test_a_timeout_around_a_claim_surfaces(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        held = proxy.hold("claim", "reply")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await queue.claim()
        held.drop()
        assert places(client) == {"returned": 1}
        assert len(await queue.claim()) == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await queue.claim(wait_seconds=60)

    run(proxy, test)


def test_a_clean_up_that_cannot_be_made_lets_the_cancellation_through(proxy: Holding, client: redis.Redis) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        held = proxy.hold("claim", "reply")
        task = asyncio.ensure_future(queue.claim())
        await reached(held)
        again = proxy.hold("claim", "request")
        task.cancel()
        await reached(again)
        again.drop()
        held.drop()
        await asyncio.wait({task})
        assert task.cancelled()

    run(proxy, test)
    assert places(client) == {"in_flight": 1}


# ---------------------------------------------------------------------- settle, extend


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_a_cancelled_verdict_takes_effect_all_the_same(
    proxy: Holding, client: redis.Redis, point: Point, verb: str
) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("abc")
        lease = await queue.claim(3)
        await cancelled(proxy.hold("settle", point), getattr(lease, verb)())
        assert not lease._batch.is_held
        assert not lease.lost
        assert sum((lease.counts.acked, lease.counts.returned, lease.counts.buried)) == 3

    run(proxy, test)
    where = {"ack": {}, "nack": {"returned": 3}, "release": {"returned": 3}, "bury": {"dead": 3}}[verb]
    assert places(client) == where


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_extension_leaves_the_lease_its_holders(proxy: Holding, point: Point) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        lease = await queue.claim()
        await cancelled(proxy.hold("extend", point), lease.extend(600))
        await lease.extend()
        await lease.ack()

    run(proxy, test)


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_close_can_be_made_again(proxy: Holding, client: redis.Redis, point: Point) -> None:
    async def test(queue: AsyncQueue) -> None:
        await queue.publish_many("ab")
        leases = [await queue.claim(), await queue.claim()]
        await cancelled(proxy.hold("settle", point), queue.aclose())
        await queue.aclose()
        assert [lease._batch.is_held for lease in leases] == [False, False]

    run(proxy, test)
    assert places(client) == {"returned": 2}


# ---------------------------------------------------------------------- blocks


def test_a_cancelled_handler_gives_its_message_back_uncounted(proxy: Holding, client: redis.Redis) -> None:
    inside = asyncio.Event()

    async def use(queue: AsyncQueue) -> None:
        async with queue.process_message() as payload:
            assert payload == b"a"
            inside.set()
            await asyncio.sleep(60)

    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        task = asyncio.ensure_future(use(queue))
        await inside.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    run(proxy, test)
    assert places(client) == {"returned": 1}
    assert deliveries(RedisMessageQueue("orders", client=client)) == [1]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("verb", "options"), [("claim", {}), ("settle", {"on_event": lambda _: None})])
def test_a_cancellation_after_the_handler_does_not_undo_its_ack(
    proxy: Holding, client: redis.Redis, point: Point, verb: str, options: dict[str, Any]
) -> None:
    """The short way acks in a script of the claim; a queue with events takes the usual way."""
    inside, held = asyncio.Event(), list[Held]()

    async def use(queue: AsyncQueue) -> None:
        async with queue.process_message():
            held.append(proxy.hold(verb, point))
            inside.set()

    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        task = asyncio.ensure_future(use(queue))
        await inside.wait()
        await cancelled(held[0], task)

    run(proxy, test, **options)
    assert places(client) == {}
    assert state.counters(client, "orders")["acked"] == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_cancellation_before_the_handler_means_that_it_never_ran(
    proxy: Holding, client: redis.Redis, point: Point
) -> None:
    seen: list[object] = []

    async def use(queue: AsyncQueue) -> None:
        async with queue.process_message() as payload:
            seen.append(payload)

    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        await cancelled(proxy.hold("claim", point), use(queue))

    run(proxy, test)
    assert seen == []
    assert places(client) == {"pending" if point == "request" else "returned": 1}


def test_a_cancellation_while_a_heartbeat_is_waited_for_still_settles(proxy: Holding, client: redis.Redis) -> None:
    async def use(queue: AsyncQueue) -> None:
        async with await queue.claim() as lease:
            held.append(proxy.hold("extend", "reply"))
            lease.start_heartbeat(0.01)
            await reached(held[0])
        pytest.fail("the cancellation must go through")

    held: list[Held] = []

    async def test(queue: AsyncQueue) -> None:
        await queue.publish("a")
        task = asyncio.ensure_future(use(queue))
        while not held or not held[0].reached.is_set():
            await asyncio.sleep(0.002)
        for _ in range(5):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled()
        held[0].drop()

    run(proxy, test)
    assert places(client) == {}


# ---------------------------------------------------------------------- threads: KeyboardInterrupt


class Interrupting:
    """Raises where a reply would be read, as a signal handler does: after the script was executed, or before."""

    def __init__(self, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self._execute = queue.session.runner.gateway.execute
        self.script, self.executed, self.calls = "", False, list[tuple[str, bool]]()
        monkeypatch.setattr(queue.session.runner.gateway, "execute", self.execute)

    def execute(self, call: Any, *, retry: bool = True, **more: Any) -> Any:
        self.calls.append((call.script.verb, retry))
        if call.script.verb != self.script:
            return self._execute(call, retry=retry, **more)
        self.script = ""
        if self.executed:
            self._execute(call, retry=retry, **more)
        raise KeyboardInterrupt


@pytest.mark.parametrize("executed", [False, True])
def test_an_interrupted_claim_holds_nothing(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, executed: bool
) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("ab")
    at = Interrupting(queue, monkeypatch)
    at.script, at.executed = "claim", executed
    with pytest.raises(KeyboardInterrupt):
        queue.claim(2)
    retries = [("claim", False), ("claim", False), ("settle", False)]  # the second claim is of the open lease
    assert at.calls == [("claim", True), *retries[: 3 if executed else 1]]
    assert places(client) == {"returned" if executed else "pending": 2}
    assert deliveries(queue) == [1, 1]


@pytest.mark.parametrize("executed", [False, True])
def test_an_interrupted_ack_takes_effect(client: redis.Redis, monkeypatch: pytest.MonkeyPatch, executed: bool) -> None:
    reported: list[QueueEvent] = []
    queue = RedisMessageQueue("orders", client=client, on_event=reported.append)
    queue.publish_many("ab")
    at = Interrupting(queue, monkeypatch)
    at.script, at.executed = "settle", executed
    with pytest.raises(KeyboardInterrupt), queue.claim(2):
        pass
    assert places(client) == {}
    assert [event.count for event in reported if event.operation == "ack"] == [2]


@pytest.mark.parametrize("block", ["lease", "process_message"])
def test_an_interrupted_block_goes_on_after_one_attempt(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    """While Redis is away, the release would be retried for two minutes before the interrupt propagates."""
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    at = Interrupting(queue, monkeypatch)
    with pytest.raises(KeyboardInterrupt), queue.claim() if block == "lease" else queue.process_message():
        raise KeyboardInterrupt
    assert at.calls == [("claim", True), ("settle", False)]
    assert places(client) == {"returned": 1}


def test_a_block_that_fails_is_settled_with_retries(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    at = Interrupting(queue, monkeypatch)
    with pytest.raises(ValueError, match="handler"), queue.claim():
        raise ValueError("handler")
    assert at.calls == [("claim", True), ("settle", True)]


def test_an_interrupt_out_of_on_event_is_not_told_twice(client: redis.Redis) -> None:
    reported: list[QueueEvent] = []

    def on_event(event: QueueEvent) -> None:
        reported.append(event)
        if event.operation == "ack":
            raise KeyboardInterrupt

    queue = RedisMessageQueue("orders", client=client, on_event=on_event)
    queue.publish("a")
    lease = queue.claim()
    with pytest.raises(KeyboardInterrupt):
        lease.ack()
    assert [event.operation for event in reported] == ["publish", "claim", "ack"]
    assert places(client) == {}


def test_a_real_interrupt_while_a_claim_waits_for_its_reply(
    server: RedisServer, client: redis.Redis, proxy: Holding
) -> None:
    """In the main thread, where Python raises it."""
    assert threading.current_thread() is threading.main_thread()
    queue = RedisMessageQueue("orders", url=proxy.url)
    queue.publish("a")
    held = proxy.hold("claim", "reply")

    def interrupt() -> None:
        held.reached.wait(60)
        signal_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        queue.claim()
    thread.join()
    held.drop()
    assert places(client) == {"returned": 1}
    queue.close()


def signal_main() -> None:
    import signal

    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
