"""A publish that Airflow stops or kills: it ends at once, its counts are known, and a retry adds what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_sluicegate.compat import AirflowException, AirflowFailException
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from sluicegate import RedisMessageQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment
from tests.airflow.instance import Instance
from tests.airflow.servers import PasswordServer
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "publishes_slowly.py"
KILLED_AFTER_SECONDS = 5  # Airflow sends SIGKILL then
STOPPED = "stopped; the current batch may be published too: 200 published"

Stop = Callable[..., str]


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.text = ""

    def _keep(self, event: str, *args: Any) -> None:
        self.text += event % args + "\n"

    info = warning = error = _keep


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Return the lines of the task's log."""
    kept = Lines()
    monkeypatch.setattr(RedisQueuePublishOperator, "log", kept)
    return kept


@pytest.fixture
def stop(queue: RedisMessageQueue, instance: Instance) -> Iterator[Stop]:
    """Publish, and terminate this process as Airflow does once the function says so; returns the error's text."""
    before = signal.getsignal(signal.SIGTERM)

    def run(busy: Callable[[], object], messages: Any, queue_name: str = queue.name, **arguments: Any) -> str:
        operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue_name, messages=messages, **arguments)
        signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())
        sent = []

        def terminate() -> None:
            wait_until(busy, "the task is busy")
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=terminate, daemon=True).start()
        with pytest.raises(AirflowException) as stopped:
            operator.execute({"ti": instance})  # type: ignore[typeddict-item]
        assert time.monotonic() - sent[0] < AT_ONCE_SECONDS
        assert not isinstance(stopped.value, AirflowFailException)
        return str(stopped.value)

    yield run
    signal.signal(signal.SIGTERM, before)


def test_a_task_that_waits_for_its_source_ends_at_once_with_its_counts(
    queue: RedisMessageQueue, stop: Stop, lines: Lines
) -> None:
    waits = threading.Event()

    def produce() -> Iterator[dict[str, int]]:
        yield from ({"id": number} for number in range(25))
        waits.set()
        while True:
            with suppress(Exception):  # a source that survives errors does not survive this
                time.sleep(600)

    text = stop(waits.is_set, produce, batch_size=10, deduplication_key="id")

    assert text.startswith(f"queue {queue.name!r}: the task was stopped; running it again is safe: messages that were")
    assert queue.depth().pending == 20
    assert (
        "stopped; the current batch may be published too: 20 published, 0 duplicates refused, 0 dropped" in lines.text
    )


def test_a_task_that_waits_for_room_in_a_full_queue_ends_at_once(queue: RedisMessageQueue, stop: Stop) -> None:
    limits = {
        "max_pending_length": 10,
        "pending_overload_policy": "block",
        "pending_overload_block_timeout_seconds": 600,
    }
    text = stop(
        lambda: queue.depth().pending == 10, [f"{number}" for number in range(20)], batch_size=10, queue_options=limits
    )

    assert "without a deduplication_key, running it again publishes those messages again" in text
    assert queue.depth().pending == 10


def test_a_task_that_tries_to_reach_redis_again_ends_at_once(stop: Stop, connect: Connect, lines: Lines) -> None:
    server = PasswordServer(PASSWORD).start()
    connect(host="localhost", port=server.port, password=PASSWORD)
    away = threading.Event()

    def produce() -> Iterator[dict[str, int]]:
        yield from ({"id": number} for number in range(10))
        server.stop()
        away.set()
        yield from ({"id": number} for number in range(10))

    try:
        text = stop(away.is_set, produce, "orders", batch_size=10, deduplication_key="id")
    finally:
        server.remove()

    assert "running it again is safe" in text
    assert ": 10 published" in lines.text


def test_a_task_that_is_stopped_before_it_publishes_says_so(stop: Stop) -> None:
    waits = threading.Event()

    def produce() -> list[str]:
        waits.set()
        time.sleep(600)
        return []

    assert stop(waits.is_set, produce).endswith("the task was stopped; nothing was published")


def test_nothing_is_interrupted_when_nothing_is_published(queue: RedisMessageQueue) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, messages=["a"])

    operator.on_kill()
    operator.execute({})
    operator.on_kill()

    assert queue.depth().pending == 1


@pytest.mark.full
def test_the_retry_of_a_task_that_airflow_stops_publishes_what_is_missing(
    airflow_deployment: Deployment, queue: RedisMessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    waits, output = tmp_path / "waits", tmp_path / "output"
    program = [sys.executable, "-m", "tests.airflow.supervised"]
    arguments = [str(airflow_deployment.home), str(DAG_FILE), "publishes_slowly", queue.name]
    with (
        output.open("w") as log,
        subprocess.Popen([*program, *arguments], start_new_session=True, stdout=log) as running,
    ):
        try:
            wait_until(waits.exists, "the generator waits")
            (task,) = psutil.Process(running.pid).children()
            waits.unlink()
            task.terminate()
            wait_until(lambda: STOPPED in output.read_text(), "the publish ends", KILLED_AFTER_SECONDS)
            wait_until(waits.exists, "the retry waits")
            assert queue.depth().pending == 200
            (tmp_path / "go").touch()
            assert running.wait(60) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

    assert [message.json()["number"] for message in queue.peek(2000)] == list(range(1000))
    assert "done: 800 published, 200 duplicates refused" in output.read_text()
