"""The progress of a drain, read from the queue while the caller waits: never from the workers."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from sluicegate.config import QueueSpec
from sluicegate.consumer import QueueConsumer
from sluicegate.log_lines import log_line
from sluicegate.opening import open_spec

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["DrainProgress", "ProgressLines", "Watch", "watching"]

_LOOK_SECONDS = 1.0
_BAR_AFTER_SECONDS = 2.0
_LINE_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0  # with a Redis that does not answer
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The progress of a drain by the counters of its queue, so the work of other consumers is included.

    Attributes:
        run_id: of the drain.
        queue: name of the queue.
        seconds: since the drain began to be watched.
        acked: messages acked since then.
        failed: deliveries that ended unacked since then: nacked or buried.
        ready: messages that a claim would get now.
        in_flight: messages in leases that are alive; those of expired leases are ready.
        per_second: messages acked per second since then.
        left_seconds: until nothing is ready or in flight, at that rate; None when nothing was acked yet.
    """

    run_id: str
    queue: str
    seconds: float
    acked: int
    failed: int
    ready: int
    in_flight: int

    @property
    def per_second(self) -> float:
        return self.acked / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_seconds(self) -> float | None:
        return (self.ready + self.in_flight) / self.per_second if self.acked > 0 and self.seconds > 0 else None

    @property
    def part(self) -> float:
        """Return how much of the work is done, from 0 to 1; new messages make it smaller."""
        whole = self.acked + self.ready + self.in_flight
        return self.acked / whole if whole else 1.0


class _Display(Protocol):
    def show(self, progress: DrainProgress) -> None: ...
    def close(self) -> None: ...


@contextmanager
def watching(
    queue: QueueSpec | QueueConsumer, run_id: str, progress: bool | Callable[[DrainProgress], object] | None
) -> Iterator[None]:
    """Show the progress of a drain while the block runs. No failure of the display reaches the drain.

    Args:
        queue: the queue, or its spec, which gets a connection of its own.
        run_id: of the drain.
        progress: see `drain`.
    """
    display = _display_for(progress)
    if display is None:
        yield
        return
    watch = Watch(queue, run_id, display)
    thread = threading.Thread(target=watch.loop, name="sluicegate-progress", daemon=True)
    started = False
    with suppress(RuntimeError):  # no more threads
        thread.start()
        started = True
    try:
        yield
    finally:
        watch.stop()
        if started:
            thread.join(2 * _PATIENCE_SECONDS)  # a call that hangs is abandoned: it only reads


class Watch:
    """Reads a queue's counters about once a second and shows them.

    Args:
        queue: the queue, or its spec, which gets a connection of its own.
        run_id: of the drain.
        display: shows the progress.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        queue: QueueSpec | QueueConsumer,
        run_id: str,
        display: _Display,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue if isinstance(queue, QueueConsumer) else None
        self._spec: QueueSpec | None = None
        if isinstance(queue, QueueSpec):
            self._spec = replace(queue, options=dict(queue.options, retry_budget_seconds=_PATIENCE_SECONDS))
        self._name = queue.name
        self._run_id = run_id
        self._display = display
        self._clock = clock
        self._first: tuple[float, int, int] | None = None
        self._ended = threading.Event()

    def stop(self) -> None:
        """Stop reading the counts."""
        self._ended.set()

    def loop(self) -> None:
        """Read until `stop`, and once more if the queue could be read before, so that the last display is the end."""
        with suppress(Exception):  # such as a URL that no connection can be made of
            self.run_once()
        while not self._ended.wait(_LOOK_SECONDS):
            self._try()
        if self._first is not None:
            self._try()
        with suppress(Exception):
            self._display.close()
        with suppress(Exception):
            if self._queue is not None and self._spec is not None:
                self._queue.close()

    def run_once(self) -> DrainProgress:
        """Read once; the first time only notes where the counts began."""
        if self._queue is None:
            assert self._spec is not None
            self._queue = open_spec(self._spec)
        depth, stats, now = self._queue.depth(), self._queue.stats(), self._clock()
        failed = stats.nacked + stats.buried
        first = self._first
        if first is None:
            first = self._first = (now, stats.acked, failed)
        seen = DrainProgress(
            run_id=self._run_id,
            queue=self._name,
            seconds=now - first[0],
            acked=stats.acked - first[1],
            failed=failed - first[2],
            ready=depth.ready,
            in_flight=depth.in_flight - depth.expired,
        )
        if now > first[0]:
            self._display.show(seen)
        return seen

    def _try(self) -> None:
        try:
            self.run_once()
        except Exception as error:  # noqa: BLE001  (a drain does not fail because of its display)
            _log.debug("the progress of drain %r cannot be read: %s", self._run_id, error)


class ProgressLines:
    """Writes a line about the progress of a drain now and then; for the argument `progress` of `drain`.

    Args:
        write: takes a line, such as the `info` of a log.
        interval_seconds: the time between two lines.
    """

    def __init__(self, write: Callable[[str], object], interval_seconds: float = _LINE_SECONDS) -> None:
        self._write = write
        self._interval_seconds = interval_seconds
        self._next = interval_seconds

    def __call__(self, progress: DrainProgress) -> None:
        if progress.seconds < self._next:
            return
        self._next = progress.seconds + self._interval_seconds
        left = progress.left_seconds
        self._write(
            f"drain {progress.run_id!r} of queue {progress.queue!r}: {progress.acked} messages acked in "
            f"{progress.seconds:.0f} s ({progress.per_second:.0f}/s), "
            f"{f'{progress.failed} failed, ' if progress.failed else ''}{progress.ready} ready, "
            f"{progress.in_flight} in flight{'' if left is None else f', about {left:.0f} s left'}"
        )


class _Lines:
    """A line every ten seconds."""

    def __init__(self) -> None:
        self._lines = ProgressLines(lambda line: log_line(logging.INFO, line))

    def show(self, progress: DrainProgress) -> None:
        self._lines(progress)

    def close(self) -> None:
        pass


class _Bar:
    """A bar on stderr, once the drain has taken a while."""

    def __init__(self, forced: bool) -> None:
        self._after = 0.0 if forced else _BAR_AFTER_SECONDS
        self._forced = forced
        self._bar: Progress | None = None
        self._task: Any = None

    def show(self, progress: DrainProgress) -> None:
        if progress.seconds < self._after:
            return
        if self._bar is None:
            self._bar = self._make()
            self._task = self._bar.add_task(f"drain {progress.queue}", total=None, rate="")
            self._bar.start()
        whole = progress.acked + progress.ready + progress.in_flight
        self._bar.update(self._task, total=whole, completed=progress.acked, rate=f"{progress.per_second:,.0f}/s")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _make(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True, force_terminal=True if self._forced else None),
            refresh_per_second=2,
        )


class _Called:
    """The caller's own function; its first failure is logged."""

    def __init__(self, function: Callable[[DrainProgress], object]) -> None:
        self._function = function
        self._failed = False

    def show(self, progress: DrainProgress) -> None:
        try:
            self._function(progress)
        except Exception:  # noqa: BLE001  (the function alters nothing)
            if not self._failed:
                _log.warning("the progress function of a drain failed; the drain goes on", exc_info=True)
            self._failed = True

    def close(self) -> None:
        pass


def _display_for(progress: bool | Callable[[DrainProgress], object] | None) -> _Display | None:
    if progress is False:
        return None
    if callable(progress):
        return _Called(progress)
    with_bar = find_spec("rich") is not None
    if progress is True and with_bar:
        return _Bar(forced=True)
    on_terminal = False
    with suppress(Exception):  # stderr may be closed, or whatever a notebook puts in its place
        on_terminal = sys.stderr.isatty()
    return _Bar(forced=False) if with_bar and on_terminal else _Lines()
