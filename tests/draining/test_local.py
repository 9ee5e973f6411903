"""`sluicegate.drain`: one worker, threads and processes, with kills, signals and arguments that cannot work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

import sluicegate
import sluicegate.asyncio
from sluicegate import (
    DrainProgress,
    DrainSummary,
    EventDrivenInterruptHandler,
    Message,
    RedisMessageQueue,
    drain,
)
from sluicegate.draining import processes
from sluicegate.draining import workers as workers_module
from sluicegate.draining.engine import DrainEngine
from sluicegate.errors import ConfigurationError, DrainFailedError, LeaseLostError, RedisUnavailableError
from tests.draining.handlers import Traces, Uncalled, calls, coroutine, written
from tests.draining.helpers import Numbers
from tests.support import state
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

every_kind = pytest.mark.parametrize(
    "options",
    [{}, {"workers": 2, "worker_kind": "thread"}, {"workers": 2, "worker_kind": "process"}],
    ids=["one worker", "threads", "processes"],
)
Options = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def ended(summary: DrainSummary) -> list[str]:
    return [part.ended for part in summary.partitions]


# ------------------------------------------------------------------ every kind of worker


@every_kind
def test_every_message_is_worked_on_and_acked_once(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options, client: redis.Redis
) -> None:
    expected = numbers(60)

    summary = drain(queue, Traces(folder), batch_size=10, **options)

    assert written(folder) == expected
    assert (summary.queue, summary.claimed, summary.acked, summary.failed) == ("orders", 60, 60, 0)
    assert ended(summary) == ["empty"] * options.get("workers", 1)
    assert [part.partition for part in summary.partitions] == list(range(options.get("workers", 1)))
    assert state.counters(client, "orders")["acked"] == 60
    assert queue.depth().leases == 0


@every_kind
def test_a_failing_message_is_found_and_named_in_the_error(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(40)

    with pytest.raises(DrainFailedError, match="the handler failed on 1 of 40 messages") as failed:
        drain(queue, Traces(folder, raise_on=17), batch_size=10, **options)

    assert written(folder) == [n for n in range(40) if n != 17]
    assert [failure.error_type for failure in failed.value.summary.failures] == ["ValueError"]  # type: ignore[attr-defined]
    assert queue.depth().delayed == 1


@every_kind
def test_a_second_call_under_the_same_run_id_repeats_nothing_and_says_what_it_left(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(20)
    first = drain(queue, Traces(folder), run_id="nightly", batch_size=10, **options)
    seen = len(calls(folder))
    numbers(3)

    second = drain(queue, Traces(folder), run_id="nightly", batch_size=10, **options)

    assert (second.acked, len(calls(folder)), second.skipped_ready) == (first.acked, seen, 3)


@every_kind
def test_a_second_call_drains_what_has_arrived_since_if_the_first_remembers_no_empty_queue(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(20)
    drain(queue, Traces(folder), run_id="nightly", remember_empty=False, **options)
    numbers(3)

    second = drain(queue, Traces(folder), run_id="nightly", remember_empty=False, **options)

    assert (second.acked, second.skipped_ready, queue.stats().acked) == (23, 0, 23)


@every_kind
def test_a_number_of_messages_is_claimed_and_not_one_more(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(30)

    summary = drain(queue, Traces(folder), until=11, batch_size=4, **options)

    assert (summary.acked, set(ended(summary)), queue.depth().ready) == (11, {"limit"}, 19)


@every_kind
def test_a_paused_queue_ends_every_worker(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(5)
    queue.pause()

    summary = drain(queue, Traces(folder), **options)

    assert (set(ended(summary)), summary.claimed, queue.depth().pending) == ({"paused"}, 0, 5)


@every_kind
def test_what_an_earlier_call_left_open_is_taken_over(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(10)
    dead = queue.claim(10, lease_id="nightly/0/0", lease_seconds=600)

    summary = drain(queue, Traces(folder), run_id="nightly", **options)

    assert (summary.acked, summary.taken_over, written(folder)) == (10, 1, list(range(10)))
    assert (folder / f"{dead.key}.json").exists()


@every_kind
def test_an_interrupt_handler_ends_every_worker_after_the_chunk_in_hand(
    make_queue: MakeQueue,
    server: RedisServer,
    numbers: Numbers,
    folder: Path,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers(40)
    stop = threading.Event()
    queue = make_queue(url=server.url, interrupt=EventDrivenInterruptHandler(stop))
    stop_all = processes._Workers._stop_all
    reported = threading.Event()
    monkeypatch.setattr(processes._Workers, "_stop_all", lambda workers: (stop_all(workers), reported.set()))

    def let_go() -> None:
        wait_until(lambda: len(calls(folder)) == options.get("workers", 1), "every worker has a chunk")
        stop.set()
        assert options.get("worker_kind") != "process" or reported.wait(30)
        (folder / "go").touch()

    helper = threading.Thread(target=let_go)
    helper.start()
    summary = drain(queue, Traces(folder, hold=True), batch_size=5, **options)
    helper.join()

    assert set(ended(summary)) <= {"interrupted", "empty"}
    assert "interrupted" in ended(summary)
    assert summary.acked == len(written(folder)) >= 5
    assert queue.depth().in_flight == 0


@every_kind
def test_an_unreachable_redis_is_raised(make_queue: MakeQueue, folder: Path, options: Options) -> None:
    nowhere = make_queue(url="redis://127.0.0.1:1/0", retry_budget_seconds=0)

    with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1:1"):
        drain(nowhere, Traces(folder), **options)


@every_kind
def test_a_function_hears_of_the_progress(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(10)
    seen: list[DrainProgress] = []

    drain(queue, Traces(folder), run_id="nightly", progress=seen.append, **options)

    assert {(progress.run_id, progress.queue) for progress in seen} == {("nightly", "orders")}
    assert (seen[-1].ready, seen[-1].in_flight) == (0, 0)


# ------------------------------------------------------------------ processes


def test_a_killed_worker_process_is_replaced_and_its_chunk_taken_over(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, client: redis.Redis
) -> None:
    expected = numbers(40)

    summary = drain(queue, Traces(folder, kill_on=7), workers=2, batch_size=10, lease_seconds=600)

    assert written(folder) == expected
    assert (summary.acked, summary.taken_over, summary.retries) == (40, 1, 1)
    assert state.counters(client, "orders")["acked"] == 40


def test_a_worker_process_that_is_killed_every_time_is_given_up_and_the_others_go_on(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path
) -> None:
    numbers(40)

    with pytest.raises(DrainFailedError, match="worker processes were killed again and again") as failed:
        drain(queue, Traces(folder, kill_on=7, kill_always=True), workers=2, batch_size=10, lease_seconds=600)

    summary = failed.value.summary
    assert isinstance(summary, DrainSummary)
    assert sorted(ended(summary)) == ["empty", "lost"]
    assert (summary.acked, summary.retries, queue.depth().in_flight) == (len(written(folder)), 4, 10)


def test_worker_processes_end_when_one_of_them_fails(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, client: redis.Redis
) -> None:
    numbers(4)
    client.set(queue.session.keys.returned, "another program's value")

    with pytest.raises(Exception, match="returned") as failed:
        drain(queue, Traces(folder), workers=2)
    client.delete(queue.session.keys.returned)

    assert any("call drain again with run_id=" in note for note in failed.value.__notes__)


# ------------------------------------------------------------------ signals

PROGRAM = """
import sys
from pathlib import Path
from sluicegate import DrainFailedError, GracefulInterruptHandler, RedisMessageQueue, drain
from sluicegate.draining import processes
from tests.draining.handlers import Traces

stop_all = processes._Workers._stop_all

def stop_and_tell(workers):
    if not workers._told_to_stop:
        stop_all(workers)
        print("told", file=sys.stderr, flush=True)

processes._Workers._stop_all = stop_and_tell

def main(url, folder, workers, graceful):
    interrupt = GracefulInterruptHandler() if graceful == "graceful" else None
    queue = RedisMessageQueue("orders", url=url, interrupt=interrupt)
    summary = drain(queue, Traces(Path(folder), hold=True), workers=int(workers), batch_size=5, lease_seconds=600)
    print(*(part.ended for part in summary.partitions), summary.acked, flush=True)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def program(tmp_path: Path, server: RedisServer, *arguments: str) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, str(script), server.url, str(tmp_path), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_releases_the_chunks_in_hand_at_once(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, server: RedisServer, workers: str
) -> None:
    numbers(20)
    running = program(folder, server, workers, "plain")
    wait_until(lambda: len(calls(folder)) == int(workers), "every worker has a chunk", seconds=30)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, reported = running.communicate(timeout=30)

    assert "KeyboardInterrupt" in reported
    assert running.returncode != 0
    assert (queue.depth().ready, queue.depth().in_flight) == (20, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_with_a_graceful_handler_lets_every_worker_finish_its_chunk(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, server: RedisServer, workers: str
) -> None:
    numbers(20)
    running = program(folder, server, workers, "graceful")
    wait_until(lambda: len(calls(folder)) == int(workers), "every worker has a chunk", seconds=30)
    os.killpg(running.pid, signal.SIGINT)
    assert running.stderr is not None
    assert "Received signal" in running.stderr.readline()
    assert workers == "1" or running.stderr.readline() == "told\n"
    (folder / "go").touch()
    said, _ = running.communicate(timeout=30)

    assert said.split()[-1] == str(len(written(folder)))
    assert "interrupted" in said
    assert (queue.depth().in_flight, queue.depth().ready) == (0, 20 - len(written(folder)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_worker_processes_whose_parent_is_gone_release_their_chunks_and_end(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, server: RedisServer, number: int
) -> None:
    numbers(20)
    running = program(folder, server, "2", "plain")
    wait_until(lambda: len(calls(folder)) == 2, "every worker has a chunk", seconds=30)
    running.send_signal(number)
    running.communicate(timeout=30)

    wait_until(lambda: queue.depth().ready == 20, "the workers release their chunks", seconds=30)


# ------------------------------------------------------------------ threads and the calling thread


def test_threads_share_a_queue_made_from_a_client(
    make_queue: MakeQueue, client: redis.Redis, numbers: Numbers, folder: Path
) -> None:
    numbers(30)

    summary = drain(make_queue(client=client), lambda batch: None, workers=3, worker_kind="thread", batch_size=5)

    assert (summary.acked, len(summary.partitions)) == (30, 3)


def test_a_lost_lease_is_no_end(queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis) -> None:
    numbers(6)
    stolen = []

    def process(batch: list[Message]) -> None:
        if not stolen:
            state.expire(client, queue.name)
            stolen.append(queue.claim(6, lease_id="another"))
            stolen[0].release()

    summary = drain(queue, process)

    assert (summary.acked, summary.retries, state.counters(client, "orders")["acked"]) == (6, 1, 6)


def test_a_lease_that_is_lost_every_time_is_raised(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def lose(engine: DrainEngine) -> None:
        attempts.append(engine._attempt)
        raise LeaseLostError("lost", lease_id="run/0/0", lost=[1])

    monkeypatch.setattr(DrainEngine, "run", lose)
    with pytest.raises(LeaseLostError):
        drain(queue, lambda batch: None)

    assert attempts == list(range(workers_module.MAX_ATTEMPTS))


def test_tables_come_with_declared_columns(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(4)

    def process(rows: pa.Table, context: sluicegate.DrainContext) -> pa.Array:
        return pa.array(["bury" if n == 2 else None for n in rows["n"].to_pylist()])

    summary = drain(queue, process, schema=pa.schema([("n", pa.int64())]))

    assert (summary.acked, summary.buried) == (3, 1)


def test_in_a_coroutine_a_drain_runs_in_a_thread(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(4)

    assert asyncio.run(asyncio.to_thread(drain, queue, lambda batch: None)).acked == 4


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "workers must be an int from 1 to 256, not 0"),
        ({"workers": True}, "workers must be an int"),
        ({"worker_kind": "fork"}, "worker_kind must be 'process' or 'thread', not 'fork'"),
        ({"batch_size": 10_001}, "batch_size must be an int from 1 to 10000"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"run_id": " "}, "run_id must be a str with a visible character"),
        ({"until": "full"}, "until must be 'empty', 'deadline' or a number of messages"),
        ({"until": "deadline"}, "needs deadline_seconds"),
        ({"on_failures": "ignore"}, "on_failures must be 'raise' or 'return', not 'ignore'"),
        ({"progress": 3}, "progress must be None, True, False or a function"),
        ({"schema": "n bigint"}, "DDL text can only be parsed by Spark"),
        ({"workers": 2}, "define it at the top level of a module, without a lambda.*worker_kind='thread'"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_before_anything_is_claimed(
    queue: RedisMessageQueue, numbers: Numbers, options: Options, said: str
) -> None:
    numbers(3)

    with pytest.raises(ConfigurationError, match=said):
        drain(queue, lambda batch: None, **options)
    assert queue.depth().ready == 3


@pytest.mark.parametrize(
    ("process", "said"),
    [(coroutine, "coroutine function"), (lambda: None, "takes no batch"), (lambda a, b, c: None, "requires 3")],
)
def test_a_handler_that_cannot_work_is_refused(queue: RedisMessageQueue, process: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        drain(queue, process)


def test_a_queue_made_from_a_client_has_no_worker_processes(
    make_queue: MakeQueue, client: redis.Redis, folder: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"made from a client.*worker_kind='thread'"):
        drain(make_queue(client=client), Traces(folder), workers=2)


def test_an_asyncio_queue_is_refused_with_what_to_do(server: RedisServer, folder: Path) -> None:
    queue: Any = sluicegate.asyncio.RedisMessageQueue("orders", url=server.url)

    with pytest.raises(TypeError, match=r"open_spec\(queue\.spec\(\)\).*asyncio\.to_thread"):
        drain(queue, Traces(folder))


def test_a_queue_that_delivers_at_most_once_is_refused(make_queue: MakeQueue, server: RedisServer) -> None:
    queue = make_queue(url=server.url, visibility_timeout_seconds=None, max_delivery_count=None)

    with pytest.raises(ConfigurationError, match="delivers at most once"):
        drain(queue, lambda batch: None)


def test_a_handler_that_a_worker_process_cannot_import_is_named(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(3)

    with pytest.raises(ConfigurationError, match=r"cannot import process \(ImportError: no module named that\)"):
        drain(queue, Uncalled(), workers=2)
    assert queue.depth().ready == 3


def test_a_program_without_a_guard_is_told_to_have_one(tmp_path: Path, server: RedisServer) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import sys\nfrom sluicegate import RedisMessageQueue, drain\n\ndef process(batch):\n    pass\n\n"
        "drain(RedisMessageQueue('orders', url=sys.argv[1]), process, workers=2)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), server.url], text=True, capture_output=True, check=False, timeout=120
    )

    assert done.returncode == 1
    error, address = done.stderr.splitlines()[-2:]
    assert "if __name__ == '__main__'" in error
    assert address.startswith("See https://")


def test_workers_do_not_import_a_main_module_that_holds_no_handler(tmp_path: Path, queue: RedisMessageQueue) -> None:
    """Such as Airflow's, which fails in a task, where there is no database."""
    (tmp_path / "handlers.py").write_text("def process(batch):\n    pass\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nfrom handlers import process\nfrom sluicegate import RedisMessageQueue, drain\n\n"
        "assert __name__ == '__main__'\n"
        "print(drain(RedisMessageQueue(sys.argv[2], url=sys.argv[1]), process, workers=2).acked)\n"
        "assert sys.modules['__main__'].process is process\n"
    )
    queue.publish_many({"n": n} for n in range(5))

    done = subprocess.run(
        [sys.executable, str(script), queue.spec().url or "", queue.name],
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@every_kind
def test_failures_are_returned_to_a_caller_that_asks_for_them(
    queue: RedisMessageQueue, numbers: Numbers, folder: Path, options: Options
) -> None:
    numbers(40)

    summary = drain(queue, Traces(folder, raise_on=17), batch_size=10, on_failures="return", **options)

    assert written(folder) == [n for n in range(40) if n != 17]
    assert (summary.acked, summary.failed, summary.returned) == (39, 1, 1)
    assert [failure.error_type for failure in summary.failures] == ["ValueError"]
    assert queue.depth().delayed == 1
