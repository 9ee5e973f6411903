"""`sluicegate worker` runs the worker of a module, and a signal ends it gracefully."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue, RedisStreamQueue
from sluicegate.jobs import RedisJobQueue
from sluicegate.worker import Worker
from tests.cli.conftest import Call
from tests.support.axes import quick
from tests.support.flavours import MakeQueue
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

# The handler of "slow" ends when the test lets it.
MODULE = """
import os, pathlib, time
from sluicegate import GracefulInterruptHandler, RedisMessageQueue
from sluicegate.worker import Worker

def _handle(worker):
    @worker.handler("quick")
    def quick(payload):
        pass

    @worker.handler("slow")
    def slow(payload):
        pathlib.Path("begun").touch()
        while not pathlib.Path("end").exists():
            time.sleep(0.01)

    worker.set_default_handler(lambda payload: None)
    return worker

def make(queue, concurrency=1):
    return _handle(Worker(queue, concurrency=concurrency, stop_timeout_seconds=20))

async def make_async(queue):
    from sluicegate.asyncio.worker import Worker
    worker = Worker(queue)

    @worker.handler("quick")
    async def quick(payload):
        pass
    return worker

def alone():
    return _handle(Worker(RedisMessageQueue("orders", url=os.environ["SLUICEGATE_URL"])))

def with_handler():
    queue = RedisMessageQueue("orders", url=os.environ["SLUICEGATE_URL"], interrupt=GracefulInterruptHandler())
    return _handle(Worker(queue))

def returns_none(queue):
    pass

def needs_more(queue, tenant):
    pass

number = 5
"""

# As the installed program does: -P keeps the working folder out of sys.path.
PROGRAM = (sys.executable, "-P", "-c", "import sys; from sluicegate.cli.main import main; sys.exit(main())")


@pytest.fixture
def folder(outside: Path) -> Path:
    """Return the folder that the worker runs in, with its module."""
    outside.joinpath("handlers.py").write_text(MODULE)
    return outside


@contextmanager
def running(folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker in a process of its own."""
    process = subprocess.Popen(
        [*PROGRAM, "worker", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "SLUICEGATE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str], *signals: int) -> tuple[int, dict[str, Any], str]:
    """Send signals and return exit code, report and log."""
    for number in signals:
        process.send_signal(number)
    out, log = process.communicate(timeout=30)
    return process.returncode, json.loads(out) if out else {}, log


@pytest.mark.parametrize("number", quick((signal.SIGTERM, signal.SIGINT), signal.SIGTERM))
def test_a_signal_lets_handlers_end_and_claims_no_more(
    folder: Path, url: str, orders: RedisMessageQueue, number: int
) -> None:
    orders.publish_many([{"type": "slow"}, {"type": "quick"}])
    with running(folder, url, "handlers:make", "orders") as process:
        wait_until(folder.joinpath("begun").exists, "the first handler runs")
        process.send_signal(number)
        folder.joinpath("end").touch()
        code, report, log = ended(process)
    assert (code, report["handled"], report["released"]) == (0, 1, 0), log
    assert orders.depth().pending == 1, "the second message stays"
    assert "1 at a time; SIGTERM or Ctrl-C stops it" in log


@pytest.mark.full
def test_a_handler_that_does_not_end_in_time_is_released(folder: Path, url: str, orders: RedisMessageQueue) -> None:
    orders.publish({"type": "slow"})
    with running(folder, url, "handlers:make", "orders", "--stop-timeout", "0.2") as process:
        wait_until(folder.joinpath("begun").exists, "the handler runs")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: orders.depth().ready == 1, "its message is claimable again")
        folder.joinpath("end").touch()
        code, report, log = ended(process)
    assert (code, report["released"], report["handled"]) == (1, 1, 0), log


@pytest.mark.full
def test_several_handlers_run_at_once(folder: Path, url: str, orders: RedisMessageQueue) -> None:
    orders.publish_many([{"type": "slow"}, {"type": "slow"}, {"type": "quick"}])
    with running(folder, url, "handlers:make", "orders", "--concurrency", "2") as process:
        wait_until(lambda: orders.depth().in_flight == 2, "both slots hold one")
        folder.joinpath("end").touch()
        wait_until(lambda: orders.depth().in_flight == 0 == orders.depth().ready, "all are handled")
        code, report, _ = ended(process, signal.SIGTERM)
    assert (code, report["handled"]) == (0, 3)


@pytest.mark.parametrize("name", quick(("make_async", "alone", "with_handler"), "make_async"))
def test_every_form_of_a_worker_runs(folder: Path, url: str, orders: RedisMessageQueue, name: str) -> None:
    orders.publish({"type": "quick"})
    place = ["orders"] if name == "make_async" else []
    with running(folder, url, f"handlers:{name}", *place) as process:
        wait_until(lambda: orders.stats().acked == 1, "the message is handled")
        code, report, log = ended(process, signal.SIGTERM)
    assert (code, report["handled"]) == (0, 1), log


@pytest.mark.full
def test_groups_and_queues_of_jobs_are_consumed(folder: Path, url: str) -> None:
    stream = RedisStreamQueue("events", url=url)
    group = stream.group("billing")
    group.create("beginning")
    stream.publish({"type": "quick"})
    with running(folder, url, "handlers:make", "events", "--group", "billing") as process:
        wait_until(lambda: group.stats().acked == 1, "the group has handled it")
        assert ended(process, signal.SIGTERM)[0] == 0
    jobs = RedisJobQueue("thumbnails", url=url)
    job = jobs.enqueue({"n": 1})
    with running(folder, url, "handlers:make", "thumbnails", "--jobs") as process:
        wait_until(lambda: jobs.get(job).status == "completed", "the job has completed")
        assert ended(process, signal.SIGTERM)[0] == 0


def test_the_function_of_the_page_makes_a_worker(
    folder: Path, orders: RedisMessageQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    exec(snippet("worker-function"), names)  # noqa: S102
    orders.publish({"type": "order_created", "order_id": 7})
    assert names["make_worker"](orders, 2).run_once().handled == 1
    assert capsys.readouterr().out == "created: 7\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere:make", "orders"), "there is no module 'nowhere'"),
        (("handlers:nothing", "orders"), "has no 'nothing'"),
        (("handlers", "orders"), "has none of worker, app"),
        (("handlers:number", "orders"), "a int is neither a Worker nor a function"),
        (("handlers:make",), "name the place to consume from"),
        (("handlers:alone", "orders"), "takes no queue"),
        (("handlers:returns_none", "orders"), "returned a NoneType"),
        (("handlers:needs_more", "orders"), "the function needs tenant"),
        (("handlers:make", "orders", "bills"), "one PLACE"),
        (("handlers:make", "orders", "--stream"), "consumed by its groups"),
        (("broken:make", "orders"), "ZeroDivisionError"),
        (("handlers:make", "orders", "--log-level", "loud"), "--log-level"),
        (("needy:make", "orders"), "needs 'not_there'"),
    ],
)
def test_what_cannot_run_is_one_line(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    folder.joinpath("broken.py").write_text("1 / 0\n")
    folder.joinpath("needy.py").write_text("import not_there\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "handlers", raising=False)
    called = call("worker", *arguments)
    assert called.code == 2
    assert words in called.err
    assert [line.split()[0] for line in called.err.splitlines()] == ["error:", "See"]


def test_concurrency_changes_between_runs_only(make_queue: MakeQueue) -> None:
    worker = Worker(make_queue(), concurrency=2)
    worker.set_default_handler(lambda payload: None)
    worker.concurrency = 5
    assert worker.concurrency == 5
    with pytest.raises(ValueError, match="concurrency"):
        worker.concurrency = 0
    with worker, pytest.raises(ValueError, match="stop it first"):
        worker.concurrency = 3
    assert worker.concurrency == 5
