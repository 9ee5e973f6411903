"""Notice a second driver under the run id of a drain.

Two drivers under one run id take each other's leases over, and neither summary counts what the other did. A retry of a
driver that died is the same call, so the second is never refused; it reports a driver that sends heartbeats.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from sluicegate._session import new_id
from sluicegate.config import QueueSpec
from sluicegate.consumer import QueueConsumer
from sluicegate.core.call import Call, alone
from sluicegate.core.transitions.keep_driver import Drivers, LiveDriver, keep_driver_call
from sluicegate.errors import RedisMessageQueueError
from sluicegate.log_lines import log_line
from sluicegate.opening import open_spec

__all__ = ["DriverWatch", "driver_heartbeat"]

_MAX_INTERVAL_SECONDS = 5.0
_MIN_INTERVAL_SECONDS = 0.1
_SILENT_HEARTBEATS = 3.5  # after which a driver counts as dead, as with speculation
_log = logging.getLogger("sluicegate")


@contextmanager
def driver_heartbeat(
    queue: QueueSpec | QueueConsumer, run_id: str | None, lease_seconds: float | None
) -> Iterator[DriverWatch]:
    """Send heartbeats for a driver while the block runs, and notice another driver of the run.

    No failure of it reaches the drain: without Redis nothing is noticed.

    Args:
        queue: the queue, or its spec, which gets a connection of its own.
        run_id: as the caller gave it; None, for a new id, costs nothing.
        lease_seconds: of the drain; a silent driver counts as dead no later than after this time.
    """
    watch = DriverWatch(queue, run_id or "", lease_seconds)
    if run_id is None:
        yield watch
        return
    watch.run_once()
    thread = threading.Thread(target=watch.loop, name="sluicegate-driver", daemon=True)
    with suppress(RuntimeError):  # no more threads
        thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        if thread.ident is not None:
            thread.join(2)  # a call that hangs is abandoned


class DriverWatch:
    """Sends heartbeats for one driver of a run.

    Attributes:
        other: the first other driver that was there before and is alive: where it runs, and since when; None for none.
        others: the drivers that were there before, as the last answer had them.

    Args:
        queue: the queue, or its spec.
        run_id: of the run.
        lease_seconds: of the drain.
    """

    def __init__(self, queue: QueueSpec | QueueConsumer, run_id: str, lease_seconds: float | None) -> None:
        self.other: str | None = None
        self.others: list[LiveDriver] = []
        self._given = queue
        self._queue: QueueConsumer | None = None
        self._run_id = run_id
        most = _MAX_INTERVAL_SECONDS if lease_seconds is None else lease_seconds / 4
        self._interval_seconds = max(_MIN_INTERVAL_SECONDS, min(_MAX_INTERVAL_SECONDS, most))
        self._nonce = new_id()
        self._place = f"{socket.gethostname()} (pid {os.getpid()})"
        self._began_us = 0
        self._first_seen: dict[bytes, int] = {}
        self._ended = threading.Event()

    def loop(self) -> None:
        """Send heartbeats until `stop`, and remove the record then."""
        while not self._ended.wait(self._interval_seconds):
            self.run_once()
        self.run_once()
        with suppress(Exception):
            if self._queue is not None and isinstance(self._given, QueueSpec):
                self._queue.close()

    def stop(self) -> None:
        """Let `loop` end."""
        self._ended.set()

    def run_once(self) -> None:
        """Send a heartbeat, or the last one after `stop`, and look for other drivers."""
        has_ended = self._ended.is_set()
        try:
            if self._queue is None:
                self._queue = open_spec(self._given) if isinstance(self._given, QueueSpec) else self._given
            found = self._queue.session.runner.run(alone(self._call(self._queue, has_ended)))
        except (RedisMessageQueueError, ValueError) as error:
            _log.debug("drain %r cannot send a heartbeat: %s", self._run_id, error)
            return
        self._look(found, has_ended)

    def _call(self, queue: QueueConsumer, has_ended: bool) -> Call[Drivers]:
        life = 0.0 if has_ended else _SILENT_HEARTBEATS * self._interval_seconds
        return keep_driver_call(queue.session.keys, self._run_id, self._nonce, self._place, life_seconds=life)

    def _look(self, found: Drivers, has_ended: bool) -> None:
        """Report a driver that was there before this one once it sends another heartbeat, or is alive at the end.

        A driver that died a moment ago is listed too, and sends no other heartbeat: this one may be its retry.
        """
        self._began_us = self._began_us or found.began_us
        mine = (self._began_us, self._nonce)
        self.others = [driver for driver in found.others if (driver.began_us, driver.nonce) < mine]
        for driver in self.others:
            first = self._first_seen.setdefault(driver.nonce, driver.until_ms)
            if self.other is None and (has_ended or driver.until_ms > first):
                self._report(driver)

    def _report(self, driver: LiveDriver) -> None:
        since = datetime.fromtimestamp(driver.began_us / 1_000_000, UTC)
        self.other = f"{driver.place}, since {since:%Y-%m-%d %H:%M:%S} UTC"
        log_line(
            logging.WARNING,
            f"drain {self._run_id!r}: another driver works under this run id: {self.other}. The two share the messages "
            "and may take each other's leases over, so neither summary counts everything; give every run a run_id of "
            "its own, which only its retries share",
        )
