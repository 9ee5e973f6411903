"""A move that is stopped anywhere and run again leaves every message in one place, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.errors import ConfigurationError
from sluicegate.jobs import RedisJobQueue
from sluicegate.migrating import JobQueueSource, MessageQueueSource, Migration, StreamSource, calls
from sluicegate.migrating.sources import entry_tail
from sluicegate.streams import RedisStreamQueue
from tests.migrating.conftest import RepeatingGateway, StoppedError, StoppingGateway
from tests.migrating.old_queues import OldJobQueue, OldMessageQueue

pytestmark = pytest.mark.usefixtures("small_pages")
Case = tuple[Callable[[redis.Redis], None], Callable[[RedisGateway], Migration], Callable[[redis.Redis], list[str]]]
WANTED = [str(number) for number in range(8)]


def fill_messages(client: redis.Redis) -> None:
    old = OldMessageQueue(client)
    old.publish(*WANTED[:6])
    old.claim(deadline_in_ms=-1)
    old.end("dlq", "6")
    old.end("completed", "7")


def messages_in(client: redis.Redis) -> list[str]:
    queue = RedisMessageQueue("new", client=client)
    texts = [message.text() for state in ("returned", "pending") for message in queue.peek(99, state=state)]  # type: ignore[call-overload]
    texts += [letter.message.text() for letter in queue.peek(99, state="dead") if letter.message]
    return texts + [done.message.text() for done in queue.peek(99, state="completed")]


def fill_jobs(client: redis.Redis) -> None:
    old = OldJobQueue(client)
    old.enqueue([[number] for number in range(8)])
    old.end("completed")
    old.end("failed")
    old.claim(ms_ago=10**6)


def jobs_in(client: redis.Redis) -> list[str]:
    jobs = RedisJobQueue("new", client=client)
    found = [job for status in ("waiting", "failed", "completed") for job in jobs.list(status, 99)]
    return [str(job.payload[0]) for job in found]


def fill_stream(client: redis.Redis) -> None:
    for number in WANTED:
        client.xadd("old", {"data": number}, id=f"{number}-1")
    client.xgroup_create("old", "g", "0")
    client.xreadgroup("g", "one", {"old": ">"}, count=2)


def entries_in(client: redis.Redis) -> list[str]:
    (group,) = client.xinfo_groups("sluicegate:{new}:stream")
    assert (group["last-delivered-id"], group["pending"]) == (b"1-1", 2)
    return [message.text() for message in RedisStreamQueue("new", client=client).peek(99)]


CASES: dict[str, Case] = {
    "message queue": (
        fill_messages,
        lambda gateway: Migration(MessageQueueSource("orders"), "new", source_gateway=gateway),
        messages_in,
    ),
    "job queue": (
        fill_jobs,
        lambda gateway: Migration(JobQueueSource(), "new", source_gateway=gateway),
        jobs_in,
    ),
    "stream": (
        fill_stream,
        lambda gateway: Migration(StreamSource("old"), "new", source_gateway=gateway, live_seconds=0),
        entries_in,
    ),
    "stream into a queue": (
        fill_stream,
        lambda gateway: Migration(StreamSource("old"), "new", source_gateway=gateway, live_seconds=0, into="queue"),
        messages_in,
    ),
    "group into a queue": (
        fill_stream,
        lambda gateway: Migration(StreamSource("old", group="g"), "new", source_gateway=gateway, live_seconds=0),
        messages_in,
    ),
}


def left_at_source(client: redis.Redis) -> int:
    lists = [key for key in client.keys("*") if client.type(key) == b"list" and not key.startswith(b"sluicegate:")]
    count = sum(client.llen(key) for key in lists if not key.endswith(b":sluicegate:page"))
    return count + client.xlen("old") + len(client.keys("queue:jobs:job:*"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_a_run_stopped_at_any_call_is_continued_by_the_next(client: redis.Redis, name: str, executed: bool) -> None:
    fill, make, read = CASES[name]
    stop_at, stopped = 0, True
    while stopped:
        stop_at, stopped = stop_at + 1, False
        client.flushall()
        fill(client)
        try:
            make(StoppingGateway(client, stop_at, executed=executed)).run()
        except StoppedError:
            stopped = True
        if stopped:
            make(RedisGateway(redis_client=client)).run()
        assert Counter(read(client)) == Counter(WANTED), f"stopped at call {stop_at}"
        assert left_at_source(client) == 0, f"stopped at call {stop_at}"
    assert stop_at > 8


@pytest.mark.parametrize("name", CASES)
def test_calls_that_are_executed_twice_move_each_message_once(client: redis.Redis, name: str) -> None:
    fill, make, read = CASES[name]
    fill(client)
    report = make(RepeatingGateway(redis_client=client)).run()
    assert Counter(read(client)) == Counter(WANTED)
    assert report.moved + sum(part.known for part in report.parts) == 8


@pytest.mark.parametrize("name", CASES)
def test_two_runs_that_alternate_move_each_message_once(client: redis.Redis, name: str) -> None:
    """One run does all of its work within a call of the other, at each of its calls in turn."""
    fill, make, read = CASES[name]
    for at in range(1, 25):
        client.flushall()
        fill(client)

        class Interleaved(RedisGateway):
            left = at

            def execute(self, call, **options):  # type: ignore[no-untyped-def]
                self.left -= 1
                if self.left == 0:
                    make(RedisGateway(redis_client=client)).run()
                return super().execute(call, **options)

        with suppress(ConfigurationError):  # it cannot tell a message that moves from one that a consumer holds
            make(Interleaved(redis_client=client)).run()
        assert Counter(read(client)) == Counter(WANTED), f"at call {at}"
        assert left_at_source(client) == 0


def test_a_source_that_is_filled_again_moves_again(client: redis.Redis) -> None:
    gateway = RedisGateway(redis_client=client)
    for _ in range(2):
        fill_messages(client)
        assert CASES["message queue"][1](gateway).run().moved == 8
    assert Counter(messages_in(client)) == Counter(WANTED * 2)


def test_equal_sources_on_two_servers_are_told_apart(client: redis.Redis, own_server: object) -> None:
    with own_server.client() as other:  # type: ignore[attr-defined]
        for place in (client, other):
            fill_stream(place)
            source = StreamSource("old")
            gateway, target = RedisGateway(redis_client=place), RedisGateway(redis_client=client)
            Migration(source, "new", source_gateway=gateway, target_gateway=target, live_seconds=0, into="queue").run()
    assert Counter(messages_in(client)) == Counter(WANTED * 2)


def test_a_page_enters_only_behind_the_one_that_it_follows(client: redis.Redis) -> None:
    """Two runs read pages of different lengths from one stream; the longer page holds what the shorter one had."""
    gateway, keys, stream = RedisGateway(redis_client=client), QueueKeys("new"), StreamKeys("new")
    values = [value for number in (1, 2) for value in (entry_tail(number, 0, b"%d" % number, b"", b"x"), b"")]
    entries = [(b"1-1", [b"data", b"x"]), (b"2-1", [b"data", b"x"])]

    def enter(after: bytes, page: bytes, count: int) -> tuple[calls.Entered, calls.Entered]:
        return (
            gateway.execute(calls.move_in_call(keys, b"old", page, values[: 2 * count], after=after)),
            gateway.execute(calls.move_into_stream_call(stream, b"old", after, page, entries[:count])),
        )

    assert enter(b"0-0", b"1-1", 1) == (calls.Entered(1), calls.Entered(1))
    assert enter(b"0-0", b"2-1", 2) == (calls.Entered(last=b"1-1"),) * 2
    assert enter(b"0-0", b"1-1", 1) == (calls.Entered(before=True),) * 2
    assert (client.llen(keys.pending), client.xlen(stream.stream)) == (1, 1)
