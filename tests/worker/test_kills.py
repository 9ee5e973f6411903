"""Worker processes are killed at random points: nothing is lost, and little is delivered again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support.project import ROOT
from tests.support.servers import RedisServer
from tests.support.settings import THOROUGH
from tests.support.waiting import wait_until
from tests.worker.handling_process import CONCURRENCY, OPTIONS


class Workers:
    """Two worker processes on one group, of which each is started again when it was killed."""

    def __init__(self, url: str, notes: Path, flavour: str) -> None:
        self._command = [sys.executable, "-m", "tests.worker.handling_process", url, str(notes), flavour]
        self.running = [self._start(), self._start()]

    def kill_one(self, index: int) -> None:
        self.running[index].kill()
        self.running[index].wait()
        self.running[index] = self._start()

    def kill_all(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT)


@pytest.fixture(params=["sync", pytest.param("asyncio", marks=pytest.mark.full)])
def workers(
    request: pytest.FixtureRequest, server: RedisServer, client: redis.Redis, tmp_path: Path
) -> Iterator[Workers]:
    ConsumerGroup("orders", "billing", client=client).create("beginning")
    made = Workers(server.url, tmp_path / "notes", request.param)
    yield made
    made.kill_all()


def noted(tmp_path: Path) -> list[tuple[int, int]]:
    """Return number and attempt of each call of a handler."""
    path = tmp_path / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def check_kills(workers: Workers, client: redis.Redis, tmp_path: Path, messages: int, kills: int, seed: int) -> None:
    """Publish messages, kill workers while they handle them, and check what became of each message."""
    chance = random.Random(seed)
    group = ConsumerGroup("orders", "billing", client=client, **OPTIONS)
    with RedisStreamQueue("orders", client=client) as stream:
        stream.publish_many([{"type": "created", "n": number} for number in range(messages)])
    wait_until(lambda: noted(tmp_path), "a worker handles messages")
    for kill in range(kills):
        at = messages * (kill + 1) // (kills + 2)
        wait_until(lambda at=at: len(noted(tmp_path)) >= at, f"{at} calls")
        time.sleep(chance.uniform(0, 0.02))  # any point inside of a claim, a handler or a settle
        workers.kill_one(chance.randrange(2))

    def is_over() -> bool:
        depth = group.depth()
        return not (depth.ready or depth.delayed or depth.in_flight)

    wait_until(is_over, "every message has ended", every_seconds=0.05)
    calls, stats = noted(tmp_path), group.stats()
    numbers = {number for number, _ in calls}
    assert numbers == set(range(messages))
    dead = [letter.message.json()["n"] for letter in group.peek(messages, state="dead") if letter.message]
    assert sorted(dead) == [number for number in range(messages) if number % 10 == 4]
    assert stats.acked == messages - len(dead)
    wanted = messages + len([number for number in range(messages) if number % 10 == 3])
    assert len(calls) <= wanted + kills * CONCURRENCY, "a kill delivers again only what was being handled"


def test_a_killed_worker_loses_nothing_and_repeats_at_most_what_it_handled(
    workers: Workers, client: redis.Redis, tmp_path: Path
) -> None:
    check_kills(workers, client, tmp_path, messages=300, kills=1, seed=1)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3 + THOROUGH))
def test_workers_killed_at_random_points_lose_nothing(
    workers: Workers, client: redis.Redis, tmp_path: Path, seed: int
) -> None:
    check_kills(workers, client, tmp_path, messages=2000, kills=12, seed=seed)
