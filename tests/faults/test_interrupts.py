"""Real signals at real processes: the first asks to stop, the second has its default effect."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.interrupts import (
    BaseGracefulInterruptHandler,
    EventDrivenInterruptHandler,
    GracefulInterruptHandler,
)
from tests.support.servers import RedisServer
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Whoever runs the tests may have ignored some, and children inherit that.
AS_IN_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""

# Says "ready", then for every line that it reads whether it is interrupted.
WORKER = """
import sys
from sluicegate.interrupts import GracefulInterruptHandler
interrupt = GracefulInterruptHandler()
print("ready", flush=True)
try:
    for line in sys.stdin:
        print(interrupt.is_interrupted(), flush=True)
    print("end", flush=True)
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
"""


class Worker:
    """A process that runs a script and answers line by line."""

    def __init__(self, code: str, *command: str, arguments: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", code if command else AS_IN_A_TERMINAL + code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read(self) -> str:
        """Wait for the next line of its output and return it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self) -> str:
        """Send a line and return the answer."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return self.read()

    def until_interrupted(self) -> None:
        """Return once the signal that was sent has been handled."""
        answers = (self.ask() for _ in range(1000))
        assert any(answer == "True" for answer in answers)

    def end(self) -> tuple[str, int]:
        """Wait for its end and return the rest of its output and its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        # `communicate` would lose the lines that `readline` has read ahead.
        return self.process.stdout.read().strip(), self.process.wait(timeout=100)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Processes to end with the test."""
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.process.kill()
        worker.process.wait()
        for pipe in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_asks_and_second_has_its_default_effect(workers: list[Worker], number: signal.Signals) -> None:
    workers.append(worker := Worker(WORKER))
    assert worker.read() == "ready"
    assert worker.ask() == "False"
    worker.process.send_signal(number)
    worker.until_interrupted()
    worker.process.send_signal(number)
    out, code = worker.end()
    assert (out, code) == (("KeyboardInterrupt", 0) if number == signal.SIGINT else ("", -number))


def test_second_signal_may_be_another_one(workers: list[Worker]) -> None:
    workers.append(worker := Worker(WORKER))
    assert worker.read() == "ready"
    worker.process.send_signal(signal.SIGINT)
    worker.until_interrupted()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == ("", -signal.SIGTERM)


def test_one_signal_lets_the_work_in_hand_be_finished(workers: list[Worker]) -> None:
    workers.append(worker := Worker(WORKER))
    assert worker.read() == "ready"
    worker.process.send_signal(signal.SIGTERM)
    worker.until_interrupted()
    assert worker.end() == ("end", 0)


def test_a_signal_that_nohup_ignores_is_refused_and_told(workers: list[Worker]) -> None:
    only_hangup = WORKER.replace("Handler()", "Handler(signals=[signal.SIGHUP])").replace(
        "import sys", "import signal, sys"
    )
    workers.append(worker := Worker(only_hangup, "nohup"))
    assert worker.process.wait(timeout=100) == 1
    assert worker.process.stderr is not None
    assert "ValueError: SIGHUP is ignored (nohup" in worker.process.stderr.read()


FORKED = """
import os, signal, sys
from sluicegate.interrupts import GracefulInterruptHandler
parents = GracefulInterruptHandler()
child = os.fork()
if child == 0:
    try:
        GracefulInterruptHandler()
    except ValueError as error:
        print(error, flush=True)
    parents.reset()
    own = GracefulInterruptHandler()
    os.kill(os.getpid(), signal.SIGTERM)
    print(own.is_interrupted(), parents.is_interrupted(), flush=True)
    own.reset()
    os.kill(os.getpid(), signal.SIGTERM)
else:
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), parents.is_interrupted(), flush=True)
"""


def test_a_forked_process_resets_its_parents_handler_and_makes_its_own(workers: list[Worker]) -> None:
    workers.append(worker := Worker(FORKED))
    assert "belongs to another GracefulInterruptHandler" in worker.read()
    assert worker.read() == "True False"
    assert worker.end() == (f"{signal.SIGTERM:d} False", 0)


IN_LOOP = """
import asyncio, sys
from sluicegate.interrupts import GracefulInterruptHandler

async def main():
    interrupt = GracefulInterruptHandler()
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    try:
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(interrupt.is_interrupted(), flush=True)
        print("end", flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
"""


def test_under_asyncio_run_the_second_interrupt_cancels_the_main_task(workers: list[Worker]) -> None:
    workers.append(worker := Worker(IN_LOOP))
    assert worker.read() == "ready"
    worker.process.send_signal(signal.SIGINT)
    worker.until_interrupted()
    worker.process.send_signal(signal.SIGINT)
    assert worker.end() == ("cancelled\nKeyboardInterrupt", 0)


# ---------------------------------------------------------------------- in this process, with a signal nobody needs

MINE = signal.SIGUSR1


@pytest.fixture
def mine() -> Iterator[None]:
    """SIGUSR1 as it was before, whatever a test does."""
    before = signal.getsignal(MINE)
    yield
    signal.signal(MINE, before)


@pytest.mark.usefixtures("mine")
def test_reset_gives_the_signal_back_and_keeps_the_answer() -> None:
    with GracefulInterruptHandler(signals=[MINE, MINE]) as interrupt:
        assert not interrupt.is_interrupted()
        signal.raise_signal(MINE)
        assert interrupt.is_interrupted()
    assert signal.getsignal(MINE) is signal.SIG_DFL
    interrupt.reset()
    assert interrupt.is_interrupted()
    GracefulInterruptHandler(signals=[MINE]).reset()


@pytest.mark.usefixtures("mine")
def test_a_signal_with_an_owner_is_refused_and_nothing_is_changed() -> None:
    def owner(*_: Any) -> None: ...

    signal.signal(MINE, owner)
    with pytest.raises(ValueError, match="SIGUSR1 has a handler already"):
        GracefulInterruptHandler(signals=[signal.SIGUSR2, MINE])
    assert signal.getsignal(MINE) is owner
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.usefixtures("mine")
def test_a_signal_of_another_handler_is_refused_until_it_is_reset() -> None:
    first = GracefulInterruptHandler(signals=[MINE])
    with pytest.raises(ValueError, match="SIGUSR1 belongs to another GracefulInterruptHandler"):
        GracefulInterruptHandler(signals=[MINE])
    first.reset()
    with GracefulInterruptHandler(signals=[MINE]) as second:
        signal.raise_signal(MINE)
        assert (first.is_interrupted(), second.is_interrupted()) == (False, True)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("arguments", "said"), [((), True), ((True,), True), ((False,), False)])
def test_the_first_signal_is_said_on_stderr_unless_told_otherwise(
    capfd: pytest.CaptureFixture[str], arguments: tuple[bool, ...], said: bool
) -> None:
    with GracefulInterruptHandler(*arguments, signals=[MINE]):
        signal.raise_signal(MINE)
    assert capfd.readouterr() == ("", f"Received signal: {signal.strsignal(MINE)}\n" if said else "")


@pytest.mark.usefixtures("mine")
def test_a_stderr_that_cannot_be_written_to_keeps_no_signal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stderr in (closed, None):
        monkeypatch.setattr(sys, "stderr", stderr)
        with GracefulInterruptHandler(signals=[MINE]) as interrupt:
            signal.raise_signal(MINE)
            assert interrupt.is_interrupted()


def test_verbose_is_yes_or_no() -> None:
    with pytest.raises(TypeError, match=re.escape("verbose must be True or False, not 1; signals are given by name")):
        GracefulInterruptHandler(1)  # type: ignore[arg-type]


def test_an_interrupt_that_ends_the_process_without_a_traceback_has_no_owner(workers: list[Worker]) -> None:
    worker = Worker("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n" + WORKER)
    workers.append(worker)
    assert worker.read() == "ready"
    worker.process.send_signal(signal.SIGINT)
    worker.until_interrupted()
    worker.process.send_signal(signal.SIGINT)
    assert worker.end() == ("", -signal.SIGINT)


@pytest.mark.usefixtures("mine")
def test_a_signal_taken_over_by_somebody_stays_theirs_after_reset() -> None:
    def owner(*_: Any) -> None: ...

    interrupt = GracefulInterruptHandler(signals=[MINE])
    signal.signal(MINE, owner)
    interrupt.reset()
    assert signal.getsignal(MINE) is owner


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("signals", "text"),
    [
        ([MINE, signal.SIGKILL], "SIGKILL cannot be caught"),
        ([MINE, 4711], "4711 is not a signal"),
        ([], "signals is empty"),
    ],
)
def test_what_is_no_signal_to_catch_is_refused_and_nothing_is_changed(signals: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GracefulInterruptHandler(signals=signals)
    assert signal.getsignal(MINE) is signal.SIG_DFL


@pytest.mark.usefixtures("mine")
def test_only_the_main_thread_makes_one() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="in the main thread only"):
        pool.submit(GracefulInterruptHandler, signals=[MINE]).result()
    assert signal.getsignal(MINE) is signal.SIG_DFL


@pytest.mark.usefixtures("mine")
def test_a_handler_interrupts_even_while_a_lock_is_held() -> None:
    lock = threading.Lock()
    with GracefulInterruptHandler(signals=[MINE]) as interrupt, lock:
        os.kill(os.getpid(), MINE)
        assert interrupt.is_interrupted()


# ---------------------------------------------------------------------- by event


@pytest.mark.parametrize("kind", [threading.Event, asyncio.Event])
def test_an_event_interrupts(kind: type[threading.Event] | type[asyncio.Event]) -> None:
    event = kind()
    interrupt = EventDrivenInterruptHandler(event)
    assert isinstance(interrupt, BaseGracefulInterruptHandler)
    assert interrupt.is_interrupted() is False
    event.set()
    assert interrupt.is_interrupted() is True


@pytest.mark.parametrize("event", [None, True, threading.Event, object()])
def test_what_cannot_be_set_is_no_event(event: Any) -> None:
    with pytest.raises(TypeError, match="stop_event must be"):
        EventDrivenInterruptHandler(event)


def test_the_base_class_asks_for_is_interrupted() -> None:
    with pytest.raises(TypeError, match="abstract"):
        BaseGracefulInterruptHandler()  # type: ignore[abstract]


# ---------------------------------------------------------------------- a queue that is asked to stop

CONSUMER = """
import sys
from sluicegate import GracefulInterruptHandler, RedisMessageQueue
interrupt = GracefulInterruptHandler()
queue = RedisMessageQueue("orders", url=sys.argv[1], interrupt=interrupt, message_wait_interval_seconds=60)
print("ready", flush=True)
while not interrupt.is_interrupted():
    with queue.process_message() as message:
        if message is not None:
            print("got", message.decode(), flush=True)
            sys.stdin.readline()
            print("done", interrupt.is_interrupted(), flush=True)
print("end", flush=True)
"""

PUBLISHER = """
import sys
from sluicegate import GracefulInterruptHandler, QueueBackpressureError, RedisMessageQueue
interrupt = GracefulInterruptHandler()
queue = RedisMessageQueue("orders", url=sys.argv[1], interrupt=interrupt, max_pending_length=1,
                          pending_overload_policy="block", pending_overload_block_timeout_seconds=60)
queue.publish("first")
print("ready", flush=True)
try:
    queue.publish("second")
except QueueBackpressureError:
    print("refused", interrupt.is_interrupted(), flush=True)
"""


def test_a_signal_ends_a_wait_for_messages(server: RedisServer, client: redis.Redis, workers: list[Worker]) -> None:
    workers.append(worker := Worker(CONSUMER, arguments=[server.url]))
    assert worker.read() == "ready"
    wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "a consumer waits")
    sent_at = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == ("end", 0)
    assert time.monotonic() - sent_at < AT_ONCE_SECONDS


def test_a_signal_lets_the_message_in_hand_be_acked_and_takes_no_other(
    server: RedisServer, queue: RedisMessageQueue, workers: list[Worker]
) -> None:
    queue.publish_many(["one", "two"])
    workers.append(worker := Worker(CONSUMER, arguments=[server.url]))
    assert (worker.read(), worker.read()) == ("ready", "got one")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.stdin is not None
    print(file=worker.process.stdin, flush=True)
    assert worker.end() == ("done True\nend", 0)
    assert (queue.depth().pending, queue.depth().in_flight) == (1, 0)
    assert [message.payload for message in queue.peek()] == [b"two"]


def test_a_signal_ends_a_publish_that_waits_for_room(
    server: RedisServer, queue: RedisMessageQueue, client: redis.Redis, workers: list[Worker]
) -> None:
    workers.append(worker := Worker(PUBLISHER, arguments=[server.url]))
    assert worker.read() == "ready"
    calls_before = int(client.info("commandstats")["cmdstat_evalsha"]["calls"])
    wait_until(
        lambda: int(client.info("commandstats")["cmdstat_evalsha"]["calls"]) > calls_before + 1, "a publisher tries"
    )
    sent_at = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == ("refused True", 0)
    assert time.monotonic() - sent_at < AT_ONCE_SECONDS
    assert [message.payload for message in queue.peek()] == [b"first"]
