"""What a driver holds for one run: leases of up to 10,000 messages, claimed, taken over and settled as one batch.

Nothing of Spark in here. The leases of run `r` are `r/0`, `r/1` and so on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sluicegate._lease_values import LeaseState
from sluicegate.core.ledger import LeaseCounts
from sluicegate.core.ranges import format_ranges
from sluicegate.draining import lease_access
from sluicegate.errors import AlreadySettledError, LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _access

__all__ = ["Held", "Holding", "hold"]

_MAX_PER_LEASE = 10_000
_MAX_LEASES = 1000  # messages that failed before come in small leases; each costs a heartbeat
_RETENTION_SECONDS = 86_400.0  # how long a retry still finds what an earlier try did
_log = logging.getLogger("sluicegate")


@dataclass(frozen=True, slots=True)
class Held:
    """The messages of one lease that have no verdict.

    Attributes:
        lease_id: the lease.
        opening: which opening of it.
        slots: ascending.
    """

    lease_id: str
    opening: str
    slots: Sequence[int]


def hold(queue: RedisMessageQueue, run_id: str, limit: int, lease_seconds: float, *, retried: bool = True) -> Holding:
    """Take over what an earlier try of the run left open, or else claim up to `limit` messages.

    A run that has anything open or acked claims nothing new: a retry works on the rows of the try before, no others, so
    that a sink can tell by their key whether it has them. Where all of it went back to the queue, the run begins anew.

    Args:
        queue: from which.
        run_id: first part of every lease id.
        limit: most messages.
        lease_seconds: life of a lease without a heartbeat; they beat from here on.
        retried: whether an earlier try may have used this run id.
    """
    holding = Holding(queue, run_id, lease_seconds)
    try:
        if not (retried and holding.resume()):
            holding.claim(limit)
    except BaseException:
        holding.end()
        raise
    return holding


class Holding:
    """The leases of one run, on its driver."""

    def __init__(self, queue: RedisMessageQueue, run_id: str, lease_seconds: float) -> None:
        self.queue = queue
        self.run_id = run_id
        self.state = LeaseState.EMPTY
        self.leases: list[Lease] = []
        self.acking = self.released = False
        self._lease_seconds = lease_seconds
        self._earlier = LeaseCounts()
        self._by_id: dict[str, tuple[Lease, Message]] | None = None
        self._rows: list[Held] | None = None
        self._digest = ""

    # ------------------------------------------------------------------ take

    def claim(self, limit: int) -> None:
        """Claim messages that are ready, lease after lease."""
        missing = limit
        for number in range(_MAX_LEASES):
            lease = self._take(number, min(missing, _MAX_PER_LEASE))
            if not lease:
                self.state = LeaseState.OPEN if self.leases else lease.state
                return
            missing -= len(lease)
            if missing <= 0:
                break
        self.state = LeaseState.OPEN

    def resume(self) -> bool:
        """Take over what an earlier try left open; whether there was anything that is not the queue's again."""
        seen = list(self._seen())
        done = [view for view in seen if view.state == "ended" and view.how == "acked"]
        taken = [self._take(at, _MAX_PER_LEASE, quiet=True) for at, view in enumerate(seen) if view.state == "open"]
        taken = [lease for lease in taken if lease]
        if not done and not taken:
            return False
        acked = self._finish_ack(taken)
        self.leases = [lease for lease in taken if lease not in acked]
        for lease in self.leases:
            lease.start_heartbeat()
        self.state = LeaseState.OPEN if self.leases else LeaseState.ACKED
        ended = [view for view in seen if view.state == "ended"]
        back = sum(view.size - view.acked - view.buried for view in ended)
        finished = sum(lease.counts.acked for lease in acked)
        self._earlier = LeaseCounts(
            sum(view.acked for view in ended) + finished, back, sum(view.buried for view in ended)
        )
        return True

    def _seen(self) -> Iterator[_access.LeaseView]:
        for number in range(_MAX_LEASES):
            view = _access.read_lease(self.queue, self._name(number))
            if view.state == "unknown":
                return
            yield view

    def _take(self, number: int, limit: int, *, quiet: bool = False) -> Lease:
        lease = self.queue.claim(
            limit,
            lease_seconds=self._lease_seconds,
            lease_id=self._name(number),
            take_over_after_seconds=0,
            retention_seconds=_RETENTION_SECONDS,
        )
        if lease.state is LeaseState.HELD:
            raise RedisMessageQueueError(
                f"lease {lease.id!r} of queue {self.queue.name!r} could not be taken over; does another driver use the "
                f"run id {self.run_id!r} at the same time?"
            )
        if lease:
            _access.drop_payloads(lease)
            if not quiet:
                self.leases.append(lease)
                lease.start_heartbeat()
        return lease

    def _name(self, number: int) -> str:
        return f"{self.run_id}/b{number}"  # no name of a drain's lease, whatever the two runs are called

    # ------------------------------------------------------------------ tell

    @property
    def rows(self) -> list[Held]:
        """What the batch consists of, by lease: what was claimed without what `ack_ids` took out. Verdicts for the
        whole leave it as it is.
        """
        if self._rows is None:
            open_slots = ((lease, lease.unsettled) for lease in self.leases)
            self._rows = [Held(lease.id, lease.opening, slots) for lease, slots in open_slots if slots]
        return self._rows

    @property
    def digest(self) -> str:
        """Names exactly these rows: 32 hex digits of the run and every opening and slot."""
        if not self._digest:
            told = hashlib.sha256(f"{self.queue.name}\0{self.run_id}".encode())
            for held in self.rows:
                told.update(f"\0{held.lease_id}\0{held.opening}\0{format_ranges(held.slots)}".encode())
            self._digest = told.hexdigest()[:32]
        return self._digest

    @property
    def opened_us(self) -> int:
        """When the last of the leases was opened, by the server's clock; 0 without any."""
        return max((int(lease.opening.partition("-")[0]) for lease in self.leases), default=0)

    @property
    def counts(self) -> LeaseCounts:
        """Confirmed verdicts, those of earlier tries included."""
        counts = [self._earlier, *(lease.counts for lease in self.leases)]
        return LeaseCounts(
            sum(one.acked for one in counts), sum(one.returned for one in counts), sum(one.buried for one in counts)
        )

    @property
    def lost(self) -> bool:
        """Whether some lease is no longer held, as of now."""
        return any(lease.lost for lease in self.leases)

    # ------------------------------------------------------------------ settle

    def ack(self) -> None:
        """All rows are done.

        Several leases are not acked in one step, so that they shall be is noted first, in one: a retry that finds the
        note acks what this try no longer could. Without it a crash in between would leave a part of the rows, and with
        it another name for them.
        """
        self.acking = bool(self.rows)
        left = [lease for lease in self.leases if self.queue.session.activity.holds(lease)]
        if len(left) > 1:
            self._note(left, _RETENTION_SECONDS)
        self._each(self.leases, lambda lease: lease.ack())

    def ack_ids(self, ids: Iterable[str]) -> int:
        """The messages of these ids are done; how many that were, those that were acked before included."""
        if self._by_id is None:
            self._by_id = {message.id: (lease, message) for lease in self.leases for message in lease.messages}
        wanted = set(ids)
        strangers = wanted - self._by_id.keys()
        if strangers:
            raise AlreadySettledError(
                f"{len(strangers)} of {len(wanted)} ids are not of batch {self.run_id!r}, such as {min(strangers)!r}; "
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
        """All rows go back, uncounted."""
        self.released = bool(self.rows)
        self.stop()
        for lease in self.leases:
            try:
                lease.release()
            except LeaseLostError as error:
                _log.info("lease %r was lost before it was released: %s", lease.id, error)

    def end(self, *, keep: bool = False) -> None:
        """Release what is left, unless it is to be kept or an ack was begun.

        The outcome of such an ack may be unknown: given back, messages that are done would be done again. Nobody could
        act on an error: what cannot be released runs out by itself.
        """
        if keep or self.acking:
            self.stop()
            return
        try:
            self.release()
        except RedisMessageQueueError as error:
            _log.warning("batch %r could not be released and runs out by itself: %s", self.run_id, error)

    def stop(self) -> None:
        """End the heartbeats."""
        for lease in self.leases:
            lease.stop_heartbeat()

    def _finish_ack(self, taken: Sequence[Lease]) -> list[Lease]:
        """Ack leases of which an earlier try noted that they are done."""
        noted = self._note(taken, 0) if taken else ()
        acked = [lease for lease, done in zip(taken, noted, strict=True) if done]
        for lease in acked:
            lease.ack()
        return acked

    def _note(self, leases: Sequence[Lease], life_seconds: float) -> tuple[bool, ...]:
        members = [lease.opening.encode() for lease in leases]
        beside = f"{self.run_id}\0acked"  # what a drain of this run id notes
        return lease_access.remember_returned(self.queue, beside, members, life_seconds)

    def _each(self, leases: Sequence[Lease], settle: Callable[[Lease], None]) -> None:
        """Settle several leases: one that is lost does not keep the others from it."""
        lost: list[LeaseLostError] = []
        for lease in leases:
            try:
                settle(lease)
            except LeaseLostError as error:
                lost.append(error)
        if lost:
            count = sum(len(error.lost) for error in lost)
            raise LeaseLostError(
                f"{len(lost)} of {len(leases)} leases of batch {self.run_id!r} were lost: {count} acks came too late, "
                f"and these messages are or will be delivered again; the others are acked. First: {lost[0]}",
                lease_id=lost[0].lease_id,
                lost=lost[0].lost,
                settled=lost[0].settled,
            )
