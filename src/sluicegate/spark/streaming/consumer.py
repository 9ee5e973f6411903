"""One consumer of a queue: what a streaming query has claimed, in micro-batches that can be replayed.

A micro-batch is a run of leases, `<consumer>/<epoch>/<number>`; an offset is the number of the last one. Leases are
claimed when Spark asks for the latest offset, kept by a heartbeat, and acked when Spark asks from an offset on: it does
so only once it has recorded that everything before is done.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from sluicegate._lease_values import LeaseState
from sluicegate.errors import ConfigurationError, LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.spark._access import drop_payloads
from sluicegate.spark._options import StreamOptions, queue_of
from sluicegate.spark.leasing.manifest import Part, Slice, cut
from sluicegate.spark.streaming.epoch import NEW, Reader, adopt, lease_id, release_older
from sluicegate.spark.streaming.microbatch import Offset, Room
from sluicegate.spark.transitions import ConsumerLease

__all__ = ["Consumer"]

_log = logging.getLogger("sluicegate")
_MAX_LEASES = 100  # of one micro-batch


class Consumer:
    """The leases of one streaming query, in the process that plans it."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._queue = queue_of(options.spec)
        self._reader = Reader(self._queue, options.consumer)
        self._seat: ConsumerLease | None = None  # as found
        self._caught_up = False
        self._held: dict[int, Lease] = {}
        self._average = 0.0  # bytes of a message
        self._budget: int | None = None  # messages that this run may still claim; None for any number
        self._last: Offset | None = None  # what was answered or planned last
        self._committed = 0

    @property
    def options(self) -> StreamOptions:
        """As the query gave them."""
        return self._options

    # ------------------------------------------------------------------ what Spark asks

    def initial(self) -> Offset:
        """Where a new query begins: always the same."""
        return Offset(self._options.consumer)

    def latest(self, start: Offset, most: int | None) -> Offset:
        """Ack what is done, up to `start`, and claim the next micro-batch; `start` itself where there is nothing.

        Args:
            start: the offset whose micro-batch Spark has recorded as done.
            most: messages; None for what the queue holds.

        Raises:
            ConfigurationError: another query uses this consumer, or the checkpoint is not of its epoch.
            RedisUnavailableError: Redis cannot be reached.
        """
        self.settle(start)
        self._sit(start)
        seat = self._known_seat()
        base = start.number if start.epoch else 0
        if not self._caught_up:
            self._catch_up(seat, base)
            self._caught_up = True
        self._keep(seat.epoch, base)
        end = self._held_beyond(base)
        if end == base:
            end = self._claim(seat.epoch, base, most)
        return start if end == base else replace(start, epoch=seat.epoch, number=end)

    def latest_of_all(self) -> Offset:
        """The same for a Spark that does not say what is done: claims go on from what was planned last.

        While messages are held that may be done it claims no more, and answers an offset with another turn: Spark then
        runs an empty micro-batch and commits the one before. Spark also asks for its reports, without a micro-batch to
        follow, and what was claimed then would wait for the next run.
        """
        last = self._last or self.initial()
        self._sit(last)
        seat = self._known_seat()
        base = last.number if last.epoch else 0
        first = not self._caught_up
        if first:
            self._adopt_behind(seat, max(0, seat.floor), base)
            self._caught_up = True
        self._keep(seat.epoch, base, floor=self._committed)
        end = self._held_beyond(base)
        if end == base and (first or not self._held):
            end = self._claim(seat.epoch, base, self._options.max_messages_per_trigger, wait=not self._held)
        if end > base:
            last = replace(last, epoch=seat.epoch, number=end)
        elif self._held:
            last = replace(last, turn=last.turn + 1)
        self._last = last
        return last

    def slices(self, start: Offset, end: Offset) -> list[Slice]:
        """What the tasks of a micro-batch read, the same at every call; nothing where `start` and `end` are one.

        Raises:
            ConfigurationError: another query uses this consumer.
            LeaseLostError: messages of it are not this query's any more, unless `failOnDataLoss` is false.
        """
        self._last = end
        if end.epoch == 0 or (end.epoch, end.number) == (start.epoch, start.number):
            return []
        self._sit(end)
        if start.epoch not in (0, end.epoch):
            raise self._of_another_epoch(start.epoch)
        base, floor = start.number if start.epoch else 0, self._known_seat().floor
        if base < floor < end.number:  # planned from a checkpoint that was behind what is settled
            base = floor
        leases = [self._planned(number) for number in range(base + 1, end.number + 1)]
        parts = [
            Part(lease.id, lease.opening, [message.slot for message in lease.messages])
            for lease in leases
            if lease is not None
        ]
        return cut(parts, self._options.num_partitions) if parts else []

    def settle(self, done: Offset) -> None:
        """Ack the leases up to an offset; what fails is logged, for Spark would end the query."""
        if self._seat is None or done.epoch != self._seat.epoch:
            return
        self._committed = max(self._committed, done.number)
        for number in sorted(number for number in self._held if number <= done.number):
            if not self._ack(self._held[number]):
                return  # the others would each be tried for as long
            del self._held[number]

    def prepare_available_now(self) -> None:
        """Stop at as many messages as are ready now; what comes back or is published later prolongs nothing."""
        self._budget = self._queue.depth().ready

    def progress(self) -> dict[str, Any] | None:
        """How far it is, and how many messages are ready, for Spark's progress reports."""
        if self._seat is None:
            return None
        number = max(self._held, default=self._committed)
        return {
            **Offset(self._options.consumer, self._seat.epoch, number).to_dict(),
            "ready": self._queue.depth().ready,
        }

    def stop(self) -> None:
        """Send no more heartbeats. What is held stays so until its lease runs out: the query may be started again."""
        for lease in self._held.values():
            lease.stop_heartbeat()

    # ------------------------------------------------------------------ the seat

    def _sit(self, offset: Offset) -> None:
        if self._seat is None:
            self._seat = self._reader.acquire(offset.epoch or NEW)
            self._add_to_budget(release_older(self._queue, self._options.consumer, self._seat.left))
        elif offset.epoch not in (0, self._seat.epoch):
            raise self._of_another_epoch(offset.epoch)

    def _known_seat(self) -> ConsumerLease:
        assert self._seat is not None
        return self._seat

    def _keep(self, epoch: int, base: int, *, floor: int | None = None) -> None:
        try:
            self._reader.keep(epoch, floor=base if floor is None else floor, top=self._behind(base) + _MAX_LEASES)
        except ConfigurationError:
            for lease in self._held.values():  # the other query shall not wait for them
                self._let_go(lease)
            self._held.clear()
            raise

    def _catch_up(self, seat: ConsumerLease, base: int) -> None:
        """Ack what an earlier process left of the micro-batches that are done, and adopt what it claimed beyond."""
        floor = seat.floor if seat.floor >= 0 else max(0, base - _MAX_LEASES)
        if floor > base:
            self._lost(
                f"the checkpoint is behind: it says that {base} leases of epoch {seat.epoch} are done, but {floor} "
                "were acked; it was restored from an older state"
            )
        for number in range(floor + 1, base + 1):
            lease = self._held.pop(number, None) or self._adopt(number)
            if lease is not None and not self._ack(lease):
                self._hold(number, lease)
        self._adopt_behind(seat, max(base, floor), base)

    def _adopt_behind(self, seat: ConsumerLease, floor: int, base: int) -> None:
        """Adopt what is open from `floor` on: all up to `base`, and what was claimed behind it up to the first gap.

        What is open behind a gap was never planned, and goes back.
        """
        gap = False
        for number in range(floor + 1, max(seat.top, base if seat.top >= 0 else base + _MAX_LEASES) + 1):
            lease = self._held.get(number) or self._adopt(number)
            gap = gap or (lease is None and number > base)
            if lease is not None and gap:
                self._held.pop(number, None)
                self._let_go(lease)
                self._add_to_budget(len(lease))
            elif lease is not None:
                self._hold(number, lease)

    # ------------------------------------------------------------------ leases

    def _claim(self, epoch: int, base: int, most: int | None, *, wait: bool = True) -> int:
        """Claim a micro-batch behind `base`; returns the number of its last lease."""
        if self._budget is not None:
            most, wait = self._budget if most is None else min(most, self._budget), False
        room = Room(most, None if most is None else self._options.max_bytes_per_trigger, self._average)
        end, first, more = base, self._behind(base), True
        for number in range(first + 1, first + _MAX_LEASES + 1):
            if not more or not room.asked:
                break
            name = lease_id(self._options.consumer, epoch, number)
            lease = self._open(name, room.asked, base, self._options.poll_wait_seconds if wait and end == base else 0)
            if lease.state is LeaseState.ACKED:
                self._lost(f"the checkpoint is behind: lease {name!r} was acked; it was restored from an older state")
                continue
            if not lease:
                break
            end, more = number, room.take(lease)
            self._hold(number, lease)
            self._add_to_budget(-len(lease))
        self._average = room.average
        return end

    def _open(self, name: str, most: int, base: int, wait_seconds: float) -> Lease:
        """Claim one lease. One that is open already belongs to a reader that was fenced and claimed late, or to one
        that was seated while this one waited: from that one nothing is taken.
        """
        claim = partial(
            self._queue.claim, most, lease_id=name, lease_seconds=self._options.lease_seconds, heartbeat=False
        )
        lease = claim(wait_seconds=wait_seconds)
        if lease.state is LeaseState.HELD:
            self._keep(self._known_seat().epoch, base, floor=0)
            lease = claim(take_over_after_seconds=0)
        return lease

    def _behind(self, base: int) -> int:
        """Where what is not settled begins: behind `base`, unless the checkpoint is of an older state."""
        return max(base, self._known_seat().floor)

    def _add_to_budget(self, messages: int) -> None:
        if self._budget is not None:
            self._budget += messages

    def _hold(self, number: int, lease: Lease) -> None:
        self._held[number] = lease
        drop_payloads(lease)
        lease.start_heartbeat()

    def _held_beyond(self, base: int) -> int:
        """The last of the leases held behind a number without a gap."""
        end = first = self._behind(base)
        while end + 1 in self._held and not self._held[end + 1].lost:
            end += 1
        return base if end == first else end

    def _adopt(self, number: int) -> Lease | None:
        name = lease_id(self._options.consumer, self._known_seat().epoch, number)
        return adopt(self._queue, name, self._options.lease_seconds)

    def _planned(self, number: int) -> Lease | None:
        """A lease of a planned micro-batch, adopted where an earlier process claimed it."""
        lease = self._held.get(number)
        if lease is None:
            lease = self._adopt(number)
            if lease is not None:
                self._hold(number, lease)
        if lease is None or lease.lost:
            name = lease_id(self._options.consumer, self._known_seat().epoch, number)
            self._lost(f"lease {name!r} of a micro-batch that Spark has planned is not held any more")
            return None
        return lease

    def _ack(self, lease: Lease) -> bool:
        """Ack a lease; False when it must be tried again."""
        try:
            lease.ack()
        except LeaseLostError as error:
            _log.warning("consumer %r: %s", self._options.consumer, error)
        except RedisMessageQueueError as error:
            _log.warning("consumer %r could not ack lease %r yet: %s", self._options.consumer, lease.id, error)
            return False
        lease.stop_heartbeat()
        return True

    def _let_go(self, lease: Lease) -> None:
        lease.stop_heartbeat()
        try:
            lease.release()
        except RedisMessageQueueError as error:
            _log.warning("consumer %r could not release lease %r: %s", self._options.consumer, lease.id, error)

    def _lost(self, what: str) -> None:
        text = (
            f"consumer {self._options.consumer!r} of queue {self._queue.name!r}: {what}. Its messages were acked, or "
            f"ran out after leaseSeconds={self._options.lease_seconds:g} without this query and are delivered again"
        )
        if self._options.fail_on_data_loss:
            raise LeaseLostError(
                f"{text}; set failOnDataLoss=false to go on without them", lease_id=self._options.consumer, lost=()
            )
        _log.warning("%s; the query goes on without them (failOnDataLoss=false)", text)

    def _of_another_epoch(self, epoch: int) -> ConfigurationError:
        return ConfigurationError(
            f"the checkpoint is of epoch {epoch} of consumer {self._options.consumer!r}, and the query is in epoch "
            f"{self._known_seat().epoch}: another query was started with this consumer since; give every query its own"
        )
