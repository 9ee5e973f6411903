"""Draining from a task: what it settles, what it reports, how it fails, is stopped and is tried again."""

from __future__ import annotations

import gc
import json
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
from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import timezone

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.identity import run_id_of
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from sluicegate import DrainContext, DrainFailedError, Message, RedisMessageQueue
from sluicegate.embedded import connect as connect_embedded
from sluicegate.errors import RedisUnavailableError, WrongKeyTypeError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.handlers import accept
from tests.airflow.instance import Instance
from tests.airflow.lines import Lines
from tests.airflow.servers import PasswordServer
from tests.support.servers import free_port
from tests.support.snippets import snippet
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "drains.py"


@pytest.fixture
def drain(queue: RedisMessageQueue, instance: Instance) -> Callable[..., dict[str, Any]]:
    """Run the operator on the test's queue."""

    def execute(process: Any = accept, *, queue_name: str | None = None, **arguments: Any) -> dict[str, Any]:
        name = queue.name if queue_name is None else queue_name
        operator = RedisQueueDrainOperator(task_id="work", queue_name=name, process=process, **arguments)
        report: dict[str, Any] = operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]
        return report

    return execute


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Return the lines of the task's log."""
    kept = Lines()
    monkeypatch.setattr(RedisQueueDrainOperator, "log", kept)
    return kept


@pytest.fixture
def termination() -> Iterator[None]:
    """Undo the handler that Airflow installs in the process of a task."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def publish(queue: RedisMessageQueue, count: int) -> None:
    queue.publish_many({"n": number, "note": "CANARY"} for number in range(count))


def failing_on(*bad: int) -> Callable[[list[Message]], None]:
    def process(batch: list[Message]) -> None:
        if any(message.json()["n"] in bad for message in batch):
            raise ValueError("TEXT of the handler")

    return process


# ---------------------------------------------------------------------- by Airflow itself


def test_a_dag_drains_and_its_retry_works_on_what_failed(
    airflow_deployment: Deployment,
    password_server: PasswordServer,
    connect: Connect,
    queue_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
    extra = {"password_env": "REDIS_PASSWORD"}
    connect("orders_redis", host="localhost", port=password_server.port, extra=extra)
    url = f"redis://localhost:{password_server.port}/0?password_env=REDIS_PASSWORD"
    names = (queue_name, f"{queue_name}-0", f"{queue_name}-1")
    queues = [RedisMessageQueue(name, url=url) for name in names]
    for queue in queues:
        queue.publish_many({"n": n, "fails": n == 17, "note": "CANARY"} for n in range(25))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["drains"].test(run_conf={"queue": queue_name, "folder": str(tmp_path)})

    assert states(run) == {
        "work": "success",
        "work_each[0]": "success",
        "work_each[1]": "success",
        "nothing_left": "skipped",
    }
    found = xcoms(run)
    assert found["work"]["run_id"] == "/".join(("drains", "work", run.run_id, "-1"))
    # The second try counts what the first one did, too: it returned one message and acked the others.
    assert {name: found["work"][name] for name in ("acked", "returned", "failed")} == {
        "acked": 25,
        "returned": 1,
        "failed": 0,
    }
    assert [each["acked"] for each in found["work_each"]] == [25, 25]
    assert [len(each["partitions"]) for each in found["work_each"]] == [2, 2]
    assert found["nothing_left"]["claimed"] == 0
    assert numbers_in(tmp_path) == list(range(25))
    for queue in queues:
        assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)
        queue.close()
    shown = airflow_deployment.stored() + "".join(capfd.readouterr()).encode() + json.dumps(found).encode()
    assert b"the handler failed on 1 of 25 messages" in shown
    assert b"ValueError in " in shown
    assert b"CANARY" not in shown
    assert PASSWORD.encode() not in shown
    assert "TEXT" not in json.dumps(found)


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


# ---------------------------------------------------------------------- what it does and reports


def test_the_report_counts_and_holds_no_payload(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], lines: Lines
) -> None:
    publish(queue, 25)
    report = drain(batch_size=10)

    assert report["partitions"][0]["chunks"] == 3
    assert {name: report[name] for name in ("queue", "run_id", "claimed", "acked", "returned", "buried", "failed")} == {
        "queue": queue.name,
        "run_id": "dag/task/run/-1",
        "claimed": 25,
        "acked": 25,
        "returned": 0,
        "buried": 0,
        "failed": 0,
    }
    assert json.loads(json.dumps(report)) == report
    assert "25 messages acked, 0 returned, 0 buried" in lines.text
    assert "CANARY" not in json.dumps(report) + lines.text


def test_options_reach_the_drain(queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]]) -> None:
    publish(queue, 25)
    rows: list[int] = []
    arguments: dict[str, Any] = {"batch_format": "arrow", "schema": arrow_schema(), "batch_size": 4, "until": 10}

    report = drain(lambda table: rows.extend(table.column("n").to_pylist()), lease_seconds=7, **arguments)

    assert rows == list(range(10))
    assert [part["ended"] for part in report["partitions"]] == ["limit"]
    assert drain(until="deadline", deadline_seconds=0.2)["partitions"][0]["ended"] == "deadline"


def test_payloads_that_do_not_fit_are_buried_if_asked_to(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]]
) -> None:
    queue.publish_many([{"n": 0}, {"n": "CANARY"}, {"n": 2}])
    rows: list[int] = []

    report = drain(lambda table: rows.extend(table.column("n").to_pylist()), schema=arrow_schema(), mode="bury")

    assert (rows, report["acked"], report["buried"], report["failed"]) == ([0, 2], 2, 1, 0)
    (letter,) = queue.peek(9, state="dead")
    assert letter.reason == "invalid_payload"


def test_payloads_that_do_not_fit_are_kept_in_the_column_that_is_named(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]]
) -> None:
    import pyarrow

    queue.publish_many([{"n": 0}, {"n": "x"}])
    rows: list[Any] = []
    schema = arrow_schema().append(pyarrow.field("bad", pyarrow.string()))

    report = drain(
        lambda table: rows.extend(table.select(["n", "bad"]).to_pylist()),
        schema=schema,
        mode="PERMISSIVE",
        column_name_of_corrupt_record="bad",
    )

    assert rows == [{"n": 0, "bad": None}, {"n": None, "bad": '{"n":"x"}'}]
    assert (report["acked"], report["failed"]) == (2, 0)


def arrow_schema() -> Any:
    import pyarrow

    return pyarrow.schema([("n", pyarrow.int64())])


def test_the_report_of_a_drain_that_failed_is_stored_before_the_task_fails(
    queue: RedisMessageQueue,
    drain: Callable[..., dict[str, Any]],
    instance: Instance,
    lines: Lines,
) -> None:
    publish(queue, 25)

    with pytest.raises(DrainFailedError, match="failed on 2 of 25 messages") as failed:
        drain(failing_on(3, 17))

    report = instance.pushed["return_value"]
    assert (report["acked"], report["returned"], report["failed"]) == (23, 2, 2)
    assert [failure["error_type"] for failure in report["failures"]] == ["ValueError"] * 2
    ids = [message_id for failure in report["failures"] for message_id in failure["message_ids"]]
    assert sorted(ids) == sorted(message.id for message in queue.peek(state="delayed"))
    assert all(message_id in lines.text for message_id in ids)
    assert "CANARY" not in json.dumps(report) + lines.text + str(failed.value)
    assert "TEXT" not in json.dumps(report) + str(failed.value)
    assert queue.depth().in_flight == 0


def test_a_task_whose_failures_are_returned_succeeds_and_lists_them(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], lines: Lines
) -> None:
    publish(queue, 25)

    report = drain(failing_on(3, 17), on_failures="return")

    assert (report["acked"], report["returned"], report["failed"]) == (23, 2, 2)
    ids = [message_id for failure in report["failures"] for message_id in failure["message_ids"]]
    assert sorted(ids) == sorted(message.id for message in queue.peek(state="delayed"))
    assert all(message_id in lines.text for message_id in ids)
    assert "CANARY" not in json.dumps(report) + lines.text


def test_the_task_log_shows_progress(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], lines: Lines
) -> None:
    publish(queue, 3)

    def process(batch: list[Message]) -> None:
        wait_until(lambda: "0 messages acked in" in lines.text and "3 in flight" in lines.text, "a line of progress")

    drain(process, progress_interval_seconds=0.01)

    assert "queue " + repr(queue.name) + ": 0 messages acked in" in lines.text


@pytest.mark.parametrize("skip", [False, True])
def test_an_empty_queue_is_drained_or_skips_the_task(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], instance: Instance, skip: bool
) -> None:
    publish(queue, 1)
    queue.claim().ack()

    if skip:
        with pytest.raises(AirflowSkipException, match="had no message"):
            drain(skip_if_empty=True)
        assert instance.pushed["return_value"]["claimed"] == 0
    else:
        assert drain()["claimed"] == 0


def test_the_log_says_why_there_was_nothing(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], lines: Lines
) -> None:
    drain()
    assert "nobody has published to this queue yet; if that is wrong, check queue_name and redis_conn_id" in lines.text

    publish(queue, 3)
    with queue.claim(3):
        drain()
    assert "there was nothing to drain: 3 in flight until " in lines.text

    publish(queue, 3)
    queue.pause()
    assert drain()["partitions"][0]["ended"] == "paused"
    assert "is paused" in lines.text


# ---------------------------------------------------------------------- tries


def test_a_retry_takes_over_what_a_killed_try_held(
    queue: RedisMessageQueue, embedded_url: str, drain: Callable[..., dict[str, Any]], instance: Instance
) -> None:
    publish(queue, 25)
    run_id = run_id_of({"ti": instance})
    # What a killed try leaves: one batch finished, one held by nobody that lives.
    first = RedisMessageQueue(queue.name, url=embedded_url)
    first.claim(10, lease_id=f"{run_id}/0/0", retention_seconds=3600).ack()
    held = first.claim(10, lease_id=f"{run_id}/0/1", retention_seconds=3600)
    assert len(held) == 10
    del first, held
    gc.collect()

    seen: list[int] = []
    report = drain(lambda batch: seen.extend(message.json()["n"] for message in batch), batch_size=10)

    assert seen == list(range(10, 25))
    assert (report["acked"], report["taken_over"], report["partitions"][0]["replayed"]) == (25, 1, 1)
    assert queue.stats().acked == 25


def test_an_outage_leaves_the_lease_to_the_retry(
    queue: RedisMessageQueue, embedded_url: str, drain: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry finds the batch under the same lease key, so that it replaces its own output."""
    publish(queue, 3)
    keys: list[str] = []
    key, close = queue.key.leases, RedisQueueHook.close

    def process(batch: list[Message], ctx: DrainContext) -> None:
        keys.append(ctx.lease_key)
        if len(keys) == 1:
            with connect_embedded(embedded_url) as client:
                client.rename(key, "elsewhere")
                client.set(key, "of another type")

    def repair(hook: RedisQueueHook | None = None) -> None:
        with connect_embedded(embedded_url) as client:
            if client.exists("elsewhere"):
                client.rename("elsewhere", key)
        if hook is not None:  # the outage is over before the hook is closed, if it is
            close(hook)

    monkeypatch.setattr(RedisQueueHook, "close", repair)
    with pytest.raises(WrongKeyTypeError):
        drain(process)
    repair()
    assert queue.depth().in_flight == 3

    report = drain(process)

    assert (report["acked"], report["taken_over"]) == (3, 1)
    assert keys[0] == keys[1]


def test_a_task_that_is_cleared_repeats_nothing_and_drains_what_has_arrived_since(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]]
) -> None:
    publish(queue, 5)
    assert drain()["acked"] == 5
    publish(queue, 2)

    again = drain()

    assert (again["acked"], again["partitions"][0]["replayed"], again["skipped_ready"]) == (7, 1, 0)
    assert queue.stats().acked == 7


KILLED_AFTER_SECONDS = 5.0  # by Airflow, a task that does not end
DAY = timezone.parse("2013-01-01")


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_killed_in_its_batch_loses_nothing_and_its_retry_acks_nothing_twice(
    airflow_deployment: Deployment,
    queue: RedisMessageQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_WORKERS", str(workers))
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    publish(queue, 1000)
    dag_file = DAG_FILE.with_name("held.py")
    program = [sys.executable, "-m", "tests.airflow.running", str(airflow_deployment.home), str(dag_file)]
    # It holds its third batch, and every other worker too.
    first = subprocess.Popen([*program, "held", queue.name], start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("held-*"))) == workers, "the batches are held")
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    done = queue.stats().acked
    assert 0 < done < 1000
    assert queue.depth().in_flight > 0
    (tmp_path / "go").touch()

    with airflow_deployment.dags([dag_file]) as dags:
        run = dags["held"].test(logical_date=DAY, run_after=DAY, run_conf={"queue": queue.name})

    report = xcoms(run)["work"]
    assert (report["acked"], report["taken_over"]) == (1000, workers)
    assert sum(part["replayed"] for part in report["partitions"]) == done / 100
    assert numbers_in(tmp_path) == list(range(1000))
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, queue.stats().acked) == (0, 0, 1000)


# ---------------------------------------------------------------------- stopped


def stopping(held: Callable[[], bool]) -> threading.Thread:
    """Terminate this process, as Airflow's supervisor does, once a handler holds a batch."""

    def stop() -> None:
        wait_until(held, "a batch is held")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def kill(
    drain: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, termination: None
) -> Callable[..., None]:
    """Run the operator as Airflow does: a SIGTERM calls `on_kill` in the main thread."""

    def run(held: Callable[[], bool], process: Any, **arguments: Any) -> None:
        execute = RedisQueueDrainOperator.execute

        def watched(operator: RedisQueueDrainOperator, context: Any) -> Any:
            signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())
            return execute(operator, context)

        monkeypatch.setattr(RedisQueueDrainOperator, "execute", watched)
        stopping(held)
        with pytest.raises(AirflowException, match="trying again is safe") as stopped:
            drain(process, **arguments)
        assert not isinstance(stopped.value, AirflowFailException)

    return run


def test_a_stopped_task_releases_its_batch_and_ends_at_once(
    queue: RedisMessageQueue, kill: Callable[..., None]
) -> None:
    publish(queue, 5)
    held = threading.Event()

    def process(batch: list[Message]) -> None:
        held.set()
        time.sleep(AT_ONCE_SECONDS)

    begun = time.monotonic()
    kill(held.is_set, process, batch_size=2)

    assert time.monotonic() - begun < AT_ONCE_SECONDS
    depth = queue.depth()
    assert (depth.ready, depth.in_flight) == (5, 0)
    with queue.claim(5) as lease:
        assert [message.delivery_count for message in lease] == [1] * 5


def test_stopped_threads_release_their_batches_while_their_handlers_still_run(
    queue: RedisMessageQueue, kill: Callable[..., None]
) -> None:
    publish(queue, 4)
    held, go = threading.Semaphore(0), threading.Event()

    def process(batch: list[Message]) -> None:
        held.release()
        assert go.wait(AT_ONCE_SECONDS)

    def both() -> bool:
        return queue.depth().in_flight == 4 and held.acquire(timeout=60) and held.acquire(timeout=60)

    def let_go() -> None:
        wait_until(lambda: queue.stats().released == 4, "the batches are released", AT_ONCE_SECONDS)
        go.set()

    threading.Thread(target=let_go, daemon=True).start()
    kill(both, process, workers=2, worker_kind="thread", batch_size=2)

    assert queue.depth().in_flight == 0
    assert queue.stats().acked == 0


def test_stopped_worker_processes_release_their_batches(
    queue: RedisMessageQueue, kill: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    publish(queue, 4)

    kill(lambda: len(list(tmp_path.glob("held-*"))) == 2, "tests.airflow.handlers:hold", workers=2, batch_size=2)

    depth = queue.depth()
    assert (depth.ready, depth.in_flight) == (4, 0)


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_airflow_stops_a_task_whose_retry_finishes_the_work(
    airflow_deployment: Deployment,
    queue: RedisMessageQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    monkeypatch.setenv("SLUICEGATE_TEST_WORKERS", str(workers))
    monkeypatch.setenv("SLUICEGATE_TEST_FOLDER", str(tmp_path))
    publish(queue, 1000)
    program = [sys.executable, "-m", "tests.airflow.supervised"]
    arguments = [str(airflow_deployment.home), str(DAG_FILE.with_name("held.py")), "held", queue.name]
    with subprocess.Popen([*program, *arguments], start_new_session=True) as running:
        try:
            wait_until(lambda: len(list(tmp_path.glob("held-*"))) == workers, "the batches are held")
            (task,) = psutil.Process(running.pid).children()
            acked = queue.stats().acked
            task.terminate()
            wait_until(lambda: queue.depth().in_flight == 0, "the batches are released", KILLED_AFTER_SECONDS)
            assert queue.stats().acked == acked
            (tmp_path / "go").touch()
            assert running.wait(60) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

    assert numbers_in(tmp_path) == list(range(1000))
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, queue.stats().acked) == (0, 0, 1000)


def test_nothing_is_interrupted_when_nothing_drains() -> None:
    operator = RedisQueueDrainOperator(task_id="work", queue_name="orders", process=accept)

    operator.on_kill()


# ---------------------------------------------------------------------- what cannot work


def test_a_constructor_checks_and_contacts_nothing() -> None:
    RedisQueueDrainOperator(task_id="work", queue_name="{{ x }}", process="no.such:thing", batch_size=-1, workers=0)


async def coroutine(batch: list[Message]) -> None: ...


def generator(batch: list[Message]) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue_name": ""}, "queue name is blank"),
        ({"process": None}, "process must be a function of a batch, or its name as 'package.module:function'"),
        ({"process": "json.loads"}, "'module:function', not 'json.loads'"),
        ({"process": "no.such.module:f"}, "cannot be imported (ModuleNotFoundError: No module named 'no')"),
        ({"process": "tests.airflow.handlers:nothing"}, "has no function 'nothing'"),
        ({"process": "tests.airflow.handlers:NOT_CALLABLE"}, "has no function 'NOT_CALLABLE'"),
        ({"process": coroutine}, "process is a coroutine function, of which a call does no work; write process(batch)"),
        ({"process": generator}, "process is a generator function, of which a call does no work; write process(batch)"),
        ({"process": lambda batch: None, "workers": 2}, "define it at the top level of a module"),
        ({"workers": 0}, "workers must be an int from 1"),
        ({"worker_kind": "greenlet"}, "worker_kind must be 'process' or 'thread'"),
        ({"batch_size": 10_001}, "batch_size must be an int from 1 to 10000"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"until": "sometime"}, "until must be 'empty', 'deadline' or a number"),
        ({"until": "deadline"}, "needs deadline_seconds"),
        ({"mode": "DROP"}, "mode must be one of FAILFAST, PERMISSIVE, BURY, not 'DROP'"),
        ({"mode": "BURY"}, "mode BURY is for payloads that do not fit a schema, and there is none; give a schema"),
        ({"queue_options": {"url": "redis://other"}}, "url is not an option here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_work_fails_at_once_and_says_what_to_do(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], arguments: dict[str, Any], words: str
) -> None:
    publish(queue, 1)

    with pytest.raises(AirflowFailException) as failed:
        drain(**arguments)

    assert words in str(failed.value)
    assert queue.depth().pending == 1


def test_a_function_of_the_dag_file_is_refused_for_worker_processes(
    queue: RedisMessageQueue, drain: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = failing_on()
    process.__module__ = "unusual_prefix_0123_orders"

    with pytest.raises(AirflowFailException, match="defined in the DAG file, which worker processes cannot import"):
        drain(process, workers=2)


def test_worker_processes_need_a_password_by_reference(
    password_server: PasswordServer, connect: Connect, queue_name: str, instance: Instance
) -> None:
    connect(host="localhost", port=password_server.port, password=PASSWORD)
    operator = RedisQueueDrainOperator(task_id="work", queue_name=queue_name, process=accept, workers=2)

    with pytest.raises(AirflowFailException, match="password_env") as failed:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert PASSWORD not in str(failed.value)


def test_a_redis_that_is_away_fails_the_try_and_names_the_server(connect: Connect, instance: Instance) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)
    operator = RedisQueueDrainOperator(
        task_id="work", queue_name="orders", process=accept, queue_options={"retry_budget_seconds": 0}
    )

    with pytest.raises(RedisUnavailableError, match=f"localhost:{port}") as failed:
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]

    assert PASSWORD not in str(failed.value)


def test_a_missing_connection_is_named(instance: Instance) -> None:
    operator = RedisQueueDrainOperator(
        task_id="work", queue_name="orders", process=accept, redis_conn_id="no_such_connection"
    )

    with pytest.raises(AirflowException, match="no_such_connection"):
        operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


# ---------------------------------------------------------------------- the documentation


def test_the_dag_of_the_documentation_stores_what_is_fine_and_buries_the_rest(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_drain.py"
    file.write_text(snippet("airflow-drain").replace("/data/orders", f"{tmp_path}/stored"))
    queue = RedisMessageQueue("orders", url=embedded_url)
    queue.publish_many({"id": number, "amount": number - 1} for number in range(5))

    with airflow_deployment.dags([file]) as dags:
        run = dags["store_orders"].test()

    assert states(run) == {"store": "success"}
    assert [path.read_text() for path in (tmp_path / "stored").glob("*.csv")] == ["1,0\n2,1\n3,2\n4,3\n"]
    assert (queue.depth().ready, queue.depth().dead) == (0, 1)
    queue.purge("dead")
    queue.close()
