"""The leases of one run are claimed, taken over and settled on its driver as one batch of up to 10,000 messages.

This module does not use Spark. The leases of run `r` are `r/b0`, `r/b1` and so on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sluicegate._lease_base import LeaseState
from sluicegate.consumer import QueueConsumer
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.core.ledger import LeaseCounts, format_ranges
from sluicegate.draining import lease_access
from sluicegate.errors import AlreadySettledError, LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.spark import _access
from sluicegate.spark._place import place_of
from sluicegate.spark.leasing.burying import bury_unfit
from sluicegate.tables.columns import Columns

__all__ = ["OpenSlots", "RunLeases", "claim_run"]

_MAX_LEASES = 1000  # of messages that failed before, which come in small leases; each lease costs a heartbeat
_RETENTION_SECONDS = 86_400.0  # how long a retry still finds the verdicts of an earlier try
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class OpenSlots:
    """Names the messages of one lease that have no verdict.

    Attributes:
        lease_id: the id of the lease.
        opening: the opening of the lease.
        slots: the slots, ascending.
    """

    lease_id: str
    opening: str
    slots: Sequence[int]


def claim_run(
    queue: QueueConsumer,
    run_id: str,
    limit: int,
    lease_seconds: float,
    *,
    retried: bool = True,
    columns: Columns | None = None,
) -> RunLeases:
    """Take over the open leases of an earlier try of the run, or else claim up to `limit` messages.

    A run with an open or acked lease claims nothing new: a retry works on the rows of the earlier try and no others, so
    that a sink can recognize them by their key. If all messages returned to the queue, the run starts again.

    Args:
        queue: the queue to claim from.
        run_id: the first part of every lease id.
        limit: the largest number of messages.
        lease_seconds: the life of a lease without a heartbeat; heartbeats start here.
        retried: whether an earlier try may have used this run id.
        columns: bury the messages that do not fit them, in the mode BURY; None to bury nothing.
    """
    run_leases = RunLeases(queue, run_id, lease_seconds, columns)
    try:
        if not (retried and run_leases.resume()):
            run_leases.claim(limit)
    except BaseException:
        run_leases.end()
        raise
    return run_leases


class RunLeases:
    """Holds the leases of one run, on its driver."""

    def __init__(self, queue: QueueConsumer, run_id: str, lease_seconds: float, columns: Columns | None = None) -> None:
        self.queue = queue
        self.run_id = run_id
        self.state = LeaseState.EMPTY
        self.leases: list[Lease] = []
        self.acking = self.released = False
        self._lease_seconds = lease_seconds
        self._columns = columns
        self._buries = columns is not None and columns.mode == "BURY"
        self._earlier = LeaseCounts()
        self._by_id: dict[str, tuple[Lease, Message]] | None = None
        self._rows: list[OpenSlots] | None = None
        self._digest = ""

    # ------------------------------------------------------------------ claim

    def claim(self, limit: int) -> None:
        """Claim ready messages, lease after lease."""
        missing = limit
        for number in range(_MAX_LEASES):
            lease = self._claim_lease(number, min(missing, MAX_CLAIM_LIMIT))
            if lease.state is LeaseState.ACKED and lease.counts.acked == 0:
                continue  # an earlier try buried some and returned the others
            if not lease:
                self.state = LeaseState.OPEN if self.leases else lease.state
                return
            self._keep(lease)
            missing -= len(lease)
            if missing <= 0:
                break
        self.state = LeaseState.OPEN

    def resume(self) -> bool:
        """Take over the open leases of an earlier try; return whether any of its messages is leased or acked.

        If the earlier try buried all of its messages, that counts as acked.
        """
        seen = list(self._views())
        ended = [view for view in seen if view.state == "ended"]
        done = any(view.how == "acked" and view.acked for view in ended) or (
            bool(ended) and all(view.buried == view.size for view in ended)
        )
        taken = [self._claim_lease(at, MAX_CLAIM_LIMIT) for at, view in enumerate(seen) if view.state == "open"]
        taken = [lease for lease in taken if lease]
        if not done and not taken:
            return False
        acked = self._finish_ack(taken)
        for lease in taken:
            if lease not in acked:
                self._keep(lease)
        self.state = LeaseState.OPEN if self.leases else LeaseState.ACKED
        back = sum(view.size - view.acked - view.buried for view in ended)
        finished = sum(lease.counts.acked for lease in acked)
        self._earlier = LeaseCounts(
            sum(view.acked for view in ended) + finished, back, sum(view.buried for view in ended)
        )
        return True

    def _views(self) -> Iterator[_access.LeaseView]:
        for number in range(_MAX_LEASES):
            view = _access.read_lease(self.queue, self._name(number))
            if view.state == "unknown":
                return
            yield view

    def _claim_lease(self, number: int, limit: int) -> Lease:
        lease = self.queue.claim(
            limit,
            lease_seconds=self._lease_seconds,
            lease_id=self._name(number),
            take_over_after_seconds=0,
            retention_seconds=_RETENTION_SECONDS,
        )
        if lease.state is LeaseState.HELD:
            raise RedisMessageQueueError(
                f"lease {lease.id!r} of {place_of(self.queue)} could not be taken over; does another driver use the "
                f"run id {self.run_id!r} at the same time?"
            )
        if lease and not self._buries:
            lease.leased.drop_payloads()  # the executors read them
        return lease

    def _keep(self, lease: Lease) -> None:
        """Add a lease to the batch, without the messages that do not fit."""
        self.leases.append(lease)
        if self._buries:
            assert self._columns is not None
            bury_unfit(lease, self._columns)
            lease.leased.drop_payloads()
        if lease.unsettled:
            lease.start_heartbeat()

    def _name(self, number: int) -> str:
        return f"{self.run_id}/b{number}"  # never the name of a drain's lease, for any two run ids

    # ------------------------------------------------------------------ describe

    @property
    def rows(self) -> list[OpenSlots]:
        """Return the messages of the batch by lease: the claimed messages without those that `ack_ids` acked.

        A verdict for the whole batch does not change it.
        """
        if self._rows is None:
            row = ((lease, lease.unsettled) for lease in self.leases)
            self._rows = [OpenSlots(lease.id, lease.opening, slots) for lease, slots in row if slots]
        return self._rows

    @property
    def digest(self) -> str:
        """Return a name of exactly these rows: 32 hex digits of the run and every opening and slot."""
        if not self._digest:
            queue = self.queue
            where = queue.name if queue.group_name is None else str(place_of(queue))
            digest = hashlib.sha256(f"{where}\0{self.run_id}".encode())
            for row in self.rows:
                digest.update(f"\0{row.lease_id}\0{row.opening}\0{format_ranges(row.slots)}".encode())
            self._digest = digest.hexdigest()[:32]
        return self._digest

    @property
    def opened_us(self) -> int:
        """Return when the last lease was opened, by the server's clock; 0 without leases."""
        return max((int(lease.opening.partition("-")[0]) for lease in self.leases), default=0)

    @property
    def counts(self) -> LeaseCounts:
        """Return the confirmed verdicts, including those of earlier tries."""
        counts = [self._earlier, *(lease.counts for lease in self.leases)]
        return LeaseCounts(
            sum(one.acked for one in counts), sum(one.returned for one in counts), sum(one.buried for one in counts)
        )

    @property
    def lost(self) -> bool:
        """Return whether some lease is no longer held now."""
        return any(lease.lost for lease in self.leases)

    # ------------------------------------------------------------------ settle

    def ack(self) -> None:
        """Ack all rows.

        Several leases are not acked in one step. The run therefore first remembers, in one step, that they shall be: a
        retry that finds this acks the leases that this try could not. Otherwise a crash in between would leave a part
        of the rows, under another name.
        """
        self.acking = bool(self.rows)
        left = [lease for lease in self.leases if self.queue.session.activity.holds(lease)]
        if len(left) > 1:
            self._remember_acking(left, _RETENTION_SECONDS)
        self._each(self.leases, lambda lease: lease.ack())

    def ack_ids(self, ids: Iterable[str]) -> int:
        """Ack the messages of these ids; return their number, including those that were acked before."""
        if self._by_id is None:
            self._by_id = {message.id: (lease, message) for lease in self.leases for message in lease.messages}
        wanted = set(ids)
        unknown = wanted - self._by_id.keys()
        if unknown:
            raise AlreadySettledError(
                f"{len(unknown)} of {len(wanted)} ids are not in batch {self.run_id!r}, such as {min(unknown)!r}; "
                "nothing was acked. Give rows of batch.df with their message id"
            )
        self._rows, self._digest = None, ""
        chosen: dict[str, list[Message]] = {}
        for lease, message in self._by_id.values():
            if message.id in wanted:
                chosen.setdefault(lease.id, []).append(message)
        self._each([lease for lease in self.leases if lease.id in chosen], lambda lease: lease.ack(chosen[lease.id]))
        return len(wanted)

    def release(self) -> None:
        """Release all rows, uncounted."""
        self.released = bool(self.rows)
        self.stop()
        for lease in self.leases:
            try:
                lease.release()
            except LeaseLostError as error:
                _log.info("lease %r was lost before it was released: %s", lease.id, error)

    def end(self, *, keep: bool = False) -> None:
        """Release the remaining leases, unless they are to be kept or an ack was begun.

        The outcome of such an ack may be unknown, and released messages would be processed again. Errors are logged,
        because no caller could act on them: a lease that cannot be released expires.
        """
        if keep or self.acking:
            self.stop()
            return
        try:
            self.release()
        except RedisMessageQueueError as error:
            _log.warning("batch %r could not be released and expires by itself: %s", self.run_id, error)

    def stop(self) -> None:
        """Stop the heartbeats."""
        for lease in self.leases:
            lease.stop_heartbeat()

    def _finish_ack(self, taken: Sequence[Lease]) -> list[Lease]:
        """Ack the leases that an earlier try had begun to ack."""
        noted = self._remember_acking(taken, 0) if taken else ()
        acked = [lease for lease, done in zip(taken, noted, strict=True) if done]
        for lease in acked:
            lease.ack()
        return acked

    def _remember_acking(self, leases: Sequence[Lease], life_seconds: float) -> tuple[bool, ...]:
        members = [lease.opening.encode() for lease in leases]
        beside = f"{self.run_id}\0acked"  # a drain of this run id uses the id itself
        return lease_access.remember_returned(self.queue, beside, members, life_seconds)

    def _each(self, leases: Sequence[Lease], settle: Callable[[Lease], None]) -> None:
        """Settle several leases, also after one was lost."""
        lost: list[LeaseLostError] = []
        for lease in leases:
            try:
                settle(lease)
            except LeaseLostError as error:
                lost.append(error)
        if lost:
            count = sum(len(error.lost) for error in lost)
            raise LeaseLostError(
                f"{len(lost)} of {len(leases)} leases of batch {self.run_id!r} were lost: {count} acks were too late, "
                f"and these messages are or will be delivered again; the others are acked. First: {lost[0]}",
                lease_id=lost[0].lease_id,
                lost=lost[0].lost,
                settled=lost[0].settled,
            )
