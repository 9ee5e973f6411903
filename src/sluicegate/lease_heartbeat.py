# Made from src/sluicegate/asyncio/lease_heartbeat.py by `make format`; edit there.
"""The heartbeat of one lease."""

from __future__ import annotations

import logging

from sluicegate import checks
from sluicegate._claimed_batch import ClaimedBatch
from sluicegate._lease_operations import extend
from sluicegate.config import QueueConfig
from sluicegate.core.transitions.extend import Extended
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.heartbeat import scheduler
from sluicegate.runtime import notify
from sluicegate.session import Session

__all__ = ["LeaseHeartbeat", "interval_for"]

_log = logging.getLogger("sluicegate")


class LeaseHeartbeat:
    """Extends one lease in the background; the scheduler of the process calls `beat` when it is due.

    Only the lease refers to it: a lease that its consumer has dropped is extended no more, and expires.

    Args:
        session: of the queue.
        batch: the lease's batch.
        interval_seconds: between extensions.
    """

    def __init__(self, session: Session, batch: ClaimedBatch, interval_seconds: float) -> None:
        self.lease_id = batch.claim.lease_id
        self.beats_through = session.runner.gateway
        self.is_running = False
        self.interval_seconds = interval_seconds
        self._session = session
        self._batch = batch

    def start(self, interval_seconds: float) -> None:
        """Extend the lease at this interval until `stop`."""
        self.interval_seconds = interval_seconds
        self.is_running = True
        scheduler().watch(self, interval_seconds)

    def stop(self) -> None:
        """No extension begins after this."""
        if self.is_running:
            self.is_running = False
            scheduler().unwatch(self)

    def beat(self) -> float | None:
        """Extend the lease once, without retries; returns the seconds to the next beat, None for no more."""
        batch = self._batch
        if batch.is_finished:
            return None
        try:
            extended = self._session.runner.run(extend(self._session, batch), retry=False)
        except RedisMessageQueueError as error:
            _log.warning("heartbeat of lease %r failed: %s", self.lease_id, type(error).__name__)
            if batch.silent_for_seconds <= 2 * batch.lease_seconds:
                return min(self.interval_seconds, 1.0)
            self._report_stopped("Redis could not be reached for twice its life")
            return None
        if batch.is_finished:
            return None
        if extended is not Extended.OK:
            self._report_stopped("it is lost or over its longest life")
            return None
        return self.interval_seconds

    def _report_stopped(self, why: str) -> None:
        _log.warning("the heartbeat of lease %r stops: %s", self.lease_id, why)
        if self._session.config.on_heartbeat_failure is not None:
            notify(self._session.config.on_heartbeat_failure)


def interval_for(config: QueueConfig, lease_seconds: float, asked: float | None, last: float | None) -> float | None:
    """The seconds between the heartbeats of a lease; None for no heartbeat.

    Args:
        config: the queue's options.
        lease_seconds: the lease's life.
        asked: what the caller asked for, which comes first.
        last: the interval that this lease had before, which comes next.

    Raises:
        ConfigurationError: an interval that is not less than half of the lease.
    """
    if asked is not None:
        checks.positive("interval_seconds", asked)
        if asked >= lease_seconds / 2:
            raise ConfigurationError(
                f"interval_seconds={asked:g} must be less than half of the lease's {lease_seconds:g} s"
            )
        return asked
    if last is not None:
        return last
    configured = config.heartbeat_interval_seconds
    if configured == 0 or config.at_most_once:
        return None
    third = lease_seconds / 3
    return third if configured is None else min(configured, third)
