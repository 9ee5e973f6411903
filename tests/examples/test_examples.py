"""The examples run as a reader would run them: as processes, against a real server, stopped by real signals."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 30.0
both = pytest.mark.parametrize("folder", [EXAMPLES, EXAMPLES / "asyncio"], ids=["sync", "asyncio"])


class Program:
    """An example under way, and its lines as they come."""

    def __init__(self, script: Path, url: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._arriving: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, script, *arguments],
            env={**os.environ, "REDIS_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """Wait for a line that satisfies the condition and return it."""
        while True:
            line = self._arriving.get(timeout=SECONDS)
            assert line is not None, f"it ended before: {self.lines}"
            if wanted(line):
                return line

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for it to end by itself; returns its exit code, with all of its lines read."""
        code = self._process.wait(timeout=SECONDS)
        while self._arriving.get(timeout=SECONDS) is not None:
            pass
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._arriving.put(self.lines[-1])
        self._arriving.put(None)


Start = Callable[..., Program]


@pytest.fixture
def start(server: RedisServer, client: redis.Redis) -> Iterator[Start]:
    """Start examples against the test's empty server; none outlives the test."""
    programs: list[Program] = []

    def begin(script: Path, *arguments: str) -> Program:
        programs.append(Program(script, server.url, *arguments))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()


def handled(programs: list[Program]) -> Counter[str]:
    return Counter(
        line.removeprefix("handled: ") for program in programs for line in program.lines if "handled" in line
    )


@both
def test_two_publishers_and_three_consumers_handle_every_order_once(
    folder: Path, start: Start, client: redis.Redis
) -> None:
    consumers = [start(folder / "receive_messages.py") for _ in range(3)]
    for consumer in consumers:
        consumer.wait_for(lambda line: line == "waiting for orders")
    publishers = [start(folder / "send_messages.py", "30", "0.01") for _ in range(2)]
    assert [publisher.end() for publisher in publishers] == [0, 0]
    orders = RedisMessageQueue("example-orders", client=client)
    wait_until(lambda: not (orders.depth().ready or orders.depth().in_flight), "all orders handled")
    for consumer in consumers:
        consumer.signal(signal.SIGTERM)

    assert [consumer.end() for consumer in consumers] == [0, 0, 0]
    assert all(program.lines[-1] == "stopped" for program in (*publishers, *consumers))
    published = [line.split(": ")[1] for each in publishers for line in each.lines if line.startswith("published")]
    refused = [line for each in publishers for line in each.lines if line.startswith("refused")]
    assert (len(published), len(refused)) == (60, 20)
    assert handled(consumers) == Counter(published)


@both
def test_a_publisher_stops_at_a_signal(folder: Path, start: Start) -> None:
    publisher = start(folder / "send_messages.py")
    publisher.wait_for(lambda line: line.startswith("published"))
    publisher.signal(signal.SIGINT)

    assert publisher.end() == 0
    assert publisher.lines[-1] == "stopped"


@both
def test_a_stopped_worker_gives_back_what_it_has_not_handled(folder: Path, start: Start, client: redis.Redis) -> None:
    orders = RedisMessageQueue("example-batches", client=client)
    orders.publish_many([f"order {number}" for number in range(100)])
    worker = start(folder / "graceful_shutdown.py", "0.02")
    worker.wait_for(lambda line: line == "handled: order 2")
    worker.signal(signal.SIGTERM)

    assert worker.end() == 0
    assert worker.lines[-1] == "stopped with nothing unsettled"
    done = handled([worker])
    assert 3 <= len(done) < 100
    depth = orders.depth()
    assert (depth.ready, depth.in_flight) == (100 - len(done), 0)
    left = orders.claim(200)
    assert {message.text() for message in left} == {f"order {number}" for number in range(100)} - set(done)
    assert {message.delivery_count for message in left} == {1}
    left.ack()


@both
def test_observability_logs_and_counts_what_happened(folder: Path, start: Start) -> None:
    program = start(folder / "observability.py")

    assert program.end() == 0
    text = "\n".join(program.lines)
    assert "orders publish success: 1" in text
    assert "orders publish duplicate: 1" in text
    assert re.search(r"^orders buried: \S+ for ValueError$", text, re.M)
    counters = [line for line in program.lines if line.startswith("queue_messages_total{")]
    counted = {line.split('operation="')[1].split('"')[0]: line for line in counters}
    assert counted["ack"].endswith(" 1.0")
    assert counted["bury"].endswith(" 1.0")
    timed = [line for line in program.lines if line.startswith("queue_call_seconds_count{") and '"publish"' in line]
    assert [line.rpartition(" ")[2] for line in timed] == ["3.0"]
    assert "nobody can handle" not in text


@both
def test_backpressure_refuses_waits_or_drops(folder: Path, start: Start) -> None:
    program = start(folder / "backpressure.py")

    assert program.end() == 0
    assert program.lines[0].startswith("refused: ")
    assert program.lines[1] == "partial batch: 0 accepted, 2 refused"
    assert sorted(program.lines[2:4]) == ["consumed: b'first'", "published: third, after a wait"]
    assert "event: publish dropped 1" in program.lines
    assert "left: ['third', 'fourth']" in program.lines


def test_two_worker_processes_drain_orders_into_files_and_bury_what_cannot_be(
    start: Start, server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    queue = RedisMessageQueue("example-orders", url=server.url)
    queue.publish_many({"order_id": n, "amount": -1 if n == 7 else n} for n in range(50))

    program = start(EXAMPLES / "drain_orders.py", str(tmp_path))
    assert program.end() == 0

    assert program.lines[-1].startswith("49 orders stored, 1 buried, in ")
    stored = [order["order_id"] for file in tmp_path.glob("[!.]*.json") for order in json.loads(file.read_text())]
    assert sorted(stored) == [n for n in range(50) if n != 7]
    assert queue.depth().dead == 1
    queue.close()


def test_jobs_are_tried_again_fail_are_cancelled_and_have_results(start: Start) -> None:
    program = start(EXAMPLES / "jobs.py")

    assert program.end() == 0
    assert program.lines == [
        "result: {'sent_to': 'alice@example.com'}",
        "attempts: 2 by worker-1 with smtp timeout",
        "failed: card declined after 1",
        "cancelled: True cancelled",
        "waiting: 0 running: 0",
    ]


def test_jobs_of_asyncio_have_results_in_their_order(start: Start) -> None:
    program = start(EXAMPLES / "asyncio" / "jobs.py")

    assert program.end() == 0
    assert program.lines == ["results: [320, 400, 512]"]


def test_a_worker_handles_events_by_type_and_retries_and_rejects(start: Start, client: redis.Redis) -> None:
    worker = start(EXAMPLES / "worker.py", "20")
    events = RedisMessageQueue("example-events", client=client)
    worker.wait_for(lambda line: line == "waiting for events")
    wait_until(lambda: events.stats().acked == 39 and events.depth().dead == 1, "all events are handled")
    worker.signal(signal.SIGTERM)

    assert worker.end() == 0
    assert worker.lines[-1] == "stopped: 39 handled, 2 failed, 1 rejected"
    assert sorted(line for line in worker.lines if line.startswith("not paid yet")) == [
        "not paid yet: 13",
        "not paid yet: 3",
    ]
    assert Counter(line for line in worker.lines if line.startswith("attempt")) == {
        "attempt 1 of 3: HandlerFailedError": 2,
        "attempt 1 of 3: Reject": 1,
    }
    assert len([line for line in worker.lines if line.startswith(("paid", "created"))]) == 39


def test_an_asyncio_worker_runs_beside_the_program(start: Start) -> None:
    program = start(EXAMPLES / "asyncio" / "worker.py")

    assert program.end() == 0
    assert sorted(line for line in program.lines if not line.startswith(("Received", "worker '"))) == [
        "archived: 0",
        "archived: 1",
        "archived: 2",
        "buried: the payload is no Order: $.order_id: int_parsing; $.cents: missing",
        *(f"created: {number} for 19.99" for number in range(3)),
    ]


def test_an_exporter_serves_what_is_on_its_redis(start: Start, client: redis.Redis) -> None:
    RedisMessageQueue("orders", client=client).publish_many("abc")
    program = start(EXAMPLES / "exporter.py", "0")
    line = program.wait_for(lambda line: line.startswith("serving "))
    with urllib.request.urlopen(line.removeprefix("serving "), timeout=10) as answer:  # noqa: S310  (its own)
        assert b'sluicegate_ready_messages{group="",queue="orders",stream=""} 3.0' in answer.read()
    program.signal(signal.SIGINT)

    assert program.end() == 0
    assert program.lines[-1] == "stopped"


def test_a_consumer_measures_its_leases(start: Start) -> None:
    program = start(EXAMPLES / "measured_consumer.py")

    assert program.end() == 0
    (line,) = program.lines
    assert line.endswith("} 10.0")
    assert 'queue="measured"' in line


def test_a_traced_queue_handles_each_message_in_the_trace_of_its_publish(start: Start) -> None:
    program = start(EXAMPLES / "traced_queue.py")

    assert program.end() == 0
    spans = ["publish traced", "checkout", "claim traced", "ack traced", "handle traced"]
    assert sorted(program.lines) == sorted(f"trace {number}: {name}" for number in range(3) for name in spans)
