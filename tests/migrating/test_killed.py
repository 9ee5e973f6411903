"""A process that moves messages is killed, again and again, and nothing is lost or moved twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest
import redis

from sluicegate import RedisGateway
from sluicegate.core.entry import payload_of
from sluicegate.jobs import RedisJobQueue
from sluicegate.migrating import JobQueueSource, MessageQueueSource, Migration, StreamSource
from tests.migrating.old_queues import OldJobQueue, OldMessageQueue
from tests.support import state
from tests.support.servers import RedisServer

SOURCES = {"new": MessageQueueSource("orders"), "jobs": JobQueueSource(), "stream": StreamSource("old")}


def run_and_kill(server: RedisServer, pages: int, seconds: float) -> bool:
    """Move in a forked process that is killed some time after it has moved some pages; return whether it was."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            gateway = RedisGateway(redis_client=server.client())
            for name, source in SOURCES.items():
                Migration(source, name, source_gateway=gateway).run(progress=lambda _: os.write(writer, b"."))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    moved = 1
    while pages and moved:
        moved = len(os.read(reader, 1))
        pages -= 1
    if moved:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    assert status in (0, signal.SIGKILL)
    return status != 0


def run_until_done(server: RedisServer, seed: int) -> int:
    """Kill runs at random points until one ends; return how many were killed."""
    chance, kills = random.Random(seed), 0
    while run_and_kill(server, chance.randrange(1, 6), chance.random() * 0.01):
        kills += 1
    return kills


def fill(client: redis.Redis, count: int) -> list[str]:
    """Store messages, jobs and entries as three other libraries do, and return the ids of the jobs."""
    OldMessageQueue(client).publish(*map(str, range(count)))
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.xadd("old", {"data": str(number)}, id=f"{number + 1}-1")
    pipe.execute()
    return OldJobQueue(client).enqueue([number] for number in range(count))


def check(client: redis.Redis, ids: list[str]) -> None:
    """Assert that everything is in its new place, once and in order."""
    wanted = [b"%d" % number for number in range(len(ids))]
    assert [payload_of(entry) for entry in state.contents(client, "new").pending] == wanted
    assert state.contents(client, "jobs").ids()["pending"] == ids
    assert RedisJobQueue("jobs", client=client).get(ids[7]).payload == [7]
    assert [fields[b"data"] for _, fields in client.xrange("sluicegate:{stream}:stream")] == wanted
    left = Counter(key.partition(b":")[0] for key in client.keys("*") if not key.endswith(b":sluicegate:page"))
    assert left == {b"sluicegate": left[b"sluicegate"], b"{old}": 1, b"old": 1}
    assert client.xlen("old") == 0


def test_a_move_that_is_killed_is_continued(client: redis.Redis, server: RedisServer) -> None:
    ids = fill(client, 3000)
    assert run_until_done(server, 1) >= 1
    check(client, ids)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_moves_killed_at_random_lose_and_repeat_nothing(client: redis.Redis, server: RedisServer, seed: int) -> None:
    ids = fill(client, 30_000)
    assert run_until_done(server, seed) >= 5
    check(client, ids)
