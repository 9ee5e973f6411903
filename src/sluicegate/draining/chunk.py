"""One leased chunk: the calls of the handler with its messages, and the settle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sluicegate._lease_base import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core.ledger import LeaseCounts
from sluicegate.draining.bisect import Bisect, refuse_when_lost
from sluicegate.draining.context import DrainContext
from sluicegate.draining.output import OutputFiles
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.returned import ReturnedMessages
from sluicegate.draining.verdicts import MessageVerdict, VerdictCollector
from sluicegate.errors import RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message

__all__ = ["Chunk", "MakeContext"]

_log = logging.getLogger("sluicegate")


MakeContext = Callable[..., DrainContext]
"""`DrainContext`, or a function that makes a subclass of it from the same keywords."""


class Chunk:
    """An open lease whose messages the handler works on.

    Args:
        lease: of the chunk.
        plan: of the drain.
        config: of the queue.
        returned: remembers what goes back.
        make_context: makes the handler's context for a part of the lease.
    """

    def __init__(
        self,
        lease: Lease,
        plan: DrainPlan,
        config: QueueConfig,
        returned: ReturnedMessages,
        make_context: Callable[[str, VerdictCollector, OutputFiles], DrainContext],
    ) -> None:
        self.lease = lease
        self.bisect = Bisect(lease, self._call, config, splits=plan.on_failure == "bisect")
        self.results: list[object] = []
        self._plan = plan
        self._returned = returned
        self._make_context = make_context

    def work(self) -> None:
        """Call the handler until the outcome of every message is known, and settle the lease unless the plan holds it.

        Only what the handler raises is caught. After any other error the lease stays open, so that a retry takes it
        over whole; when the process is asked to end, what was done is settled and the rest is released.
        """
        self.lease.start_heartbeat(self._plan.heartbeat_seconds)
        with self.lease.traced():
            self._work()

    def settle(self) -> None:
        """Settle a chunk that was held, in one call."""
        self._remember_returned()
        self.lease.stop_heartbeat()
        self.lease.settle(*self.bisect.verdicts())

    def release(self) -> None:
        """Settle what was done, and release the rest for others. A chunk that was held is released whole."""
        self.lease.stop_heartbeat()
        try:
            if self._plan.holds:
                self.lease.release()
            else:
                self._remember_returned()
                self.lease.settle(*self.bisect.verdicts(), Verdict("release"))
        except RedisMessageQueueError as error:
            _log.warning("lease %r could not be released and will expire: %s", self.lease.id, error)

    def abandon(self) -> None:
        """Leave the lease to expire, without a call to Redis."""
        self.lease.stop_heartbeat(wait=False)
        if self.lease.unsettled:
            _log.warning("lease %r was not released and will expire: Redis is away", self.lease.id)

    def counts(self) -> LeaseCounts:
        """Return how many messages a held chunk will ack, return and bury."""
        return LeaseCounts(*self.bisect.counts())

    def _work(self) -> None:
        try:
            self.bisect.run()
            if self._plan.on_failure == "raise" and self.bisect.error is not None:
                self._settle_failed(self.bisect.error)
                raise self.bisect.error
            if self._plan.holds:
                return
            self._remember_returned()
        except Exception:
            self.lease.stop_heartbeat()
            raise
        except BaseException:
            self.release()
            raise
        self.lease.stop_heartbeat()
        self.lease.settle(*self.bisect.verdicts())

    def _settle_failed(self, error: Exception) -> None:
        """Give a failed chunk back whole with its error; what the handler raised matters more than this call."""
        self.lease.stop_heartbeat()
        try:
            self.lease.settle(*self.bisect.verdicts())
        except RedisMessageQueueError as failure:
            _log.warning("lease %r could not be settled after its handler failed: %s", self.lease.id, failure)
            error.add_note(f"lease {self.lease.id!r} could not be settled, so its messages come back when it expires")

    def _remember_returned(self) -> None:
        self._returned.remember(self.lease.id, self.bisect.given_back(), failed=self.bisect.failed)

    def _call(self, messages: Sequence[Message], collector: VerdictCollector) -> dict[int, MessageVerdict]:
        """Call the handler once. Its files get their names only after its verdicts have proved to be valid."""
        key = self.lease.key
        if len(messages) < len(self.lease):
            key = f"{key}-{messages[0].slot}-{messages[-1].slot}"
        files = OutputFiles(key)
        try:
            result = self._plan.handler(messages, self._make_context(key, collector, files))
            verdicts = collector.close(None if self._plan.keeps_results else result)
            refuse_when_lost(self.lease)
            files.place()
        finally:
            files.drop()
        if self._plan.keeps_results:
            self.results.append(result)
        return verdicts
