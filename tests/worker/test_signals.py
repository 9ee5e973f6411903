"""What a signal does to a program whose main thread runs a worker."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.flavours import Flavour
from tests.support.project import ROOT
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

PROGRAM = """
import asyncio, signal, sys, time
if sys.argv[2] == "asyncio":
    from sluicegate.asyncio import RedisMessageQueue
    from sluicegate.asyncio.worker import Worker
else:
    from sluicegate import RedisMessageQueue
    from sluicegate.worker import Worker

worker = Worker(RedisMessageQueue("orders", url=sys.argv[1]), stop_timeout_seconds=30)


def handle(order):
    print("begun", flush=True)
    time.sleep(order["seconds"])


worker.register("created", handle)
if sys.argv[2] == "asyncio":
    asyncio.run(worker.run())
else:
    signal.signal(signal.SIGTERM, lambda *_: print(worker.stop(), flush=True))  # in the thread that runs it
    print(worker.run().handled, flush=True)
"""


def run(server: RedisServer, shell: str, number: int) -> tuple[int, str]:
    """Send a signal to a program once its handler runs; returns its exit code and what it printed after that."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.url, shell],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "begun\n"
        program.send_signal(number)
        return program.wait(30), program.stdout.read()
    finally:
        program.kill()


@pytest.fixture
def flavour() -> Flavour:
    """Return the one flavour in which the tests themselves use the queue."""
    return Flavour()


@pytest.mark.parametrize("shell", ["sync", "asyncio"])
def test_ctrl_c_releases_what_is_handled_at_once(server: RedisServer, queue: Any, shell: str) -> None:
    queue.publish({"type": "created", "seconds": 1000})
    code, _ = run(server, shell, signal.SIGINT)

    assert code != 0
    with queue.claim() as lease:
        assert [message.delivery_count for message in lease] == [1]


def test_a_signal_handler_may_stop_the_worker_of_its_own_thread(server: RedisServer, queue: Any) -> None:
    queue.publish({"type": "created", "seconds": 0.5})
    code, printed = run(server, "sync", signal.SIGTERM)

    assert (code, printed.split()) == (0, ["False", "1"])
    wait_until(lambda: queue.stats().acked == 1, "it is acked")
