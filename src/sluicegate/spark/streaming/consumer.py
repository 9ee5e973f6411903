"""Consume a queue for a streaming query, in micro-batches that can be replayed.

A micro-batch is a run of leases, `<consumer>/<epoch>/<number>`; an offset is the number of the last lease. The consumer
claims leases when Spark asks for the latest offset, extends them with heartbeats, and acks them when Spark asks from an
offset on: Spark does so only after it has recorded that everything before that offset is done.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any

from sluicegate._lease_base import LeaseState
from sluicegate.errors import ConfigurationError, LeaseLostError, RedisMessageQueueError
from sluicegate.lease import Lease
from sluicegate.spark._access import read_lease
from sluicegate.spark._options import StreamOptions
from sluicegate.spark._place import place_of, queue_of
from sluicegate.spark.leasing.burying import bury_unfit
from sluicegate.spark.leasing.manifest import Part, Slice, cut
from sluicegate.spark.streaming.epoch import NEW, ConsumerReader, adopt, lease_id, release_older
from sluicegate.spark.streaming.microbatch import Capacity, Offset, Pace
from sluicegate.spark.transitions import ConsumerLease
from sluicegate.tables.columns import Columns

__all__ = ["Consumer"]

_log = logging.getLogger("sluicegate")
_MAX_LEASES = 100  # of one micro-batch


class Consumer:
    """Holds the leases of one streaming query, in the process that plans it.

    In the mode BURY it buries misfits as soon as it holds a lease, before Spark gets the offset: a planned micro-batch
    has the same messages at every replay.
    """

    def __init__(self, options: StreamOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._queue = queue_of(options.spec)
        self._reader = ConsumerReader(self._queue, options.consumer)
        self._acquired: ConsumerLease | None = None  # as it was when this process acquired it
        self._caught_up = False
        self._held: dict[int, Lease] = {}
        self._emptied: set[int] = set()  # leases of which all messages were buried
        self._average = 0.0  # bytes of a message
        self._pace = Pace(options.max_messages_per_second)
        self._redelivered = 0  # messages claimed by this process that had been delivered before
        self._budget: int | None = None  # messages that this run may still claim; None for any number
        self._last: Offset | None = None  # answered or planned last
        self._committed = 0

    @property
    def options(self) -> StreamOptions:
        """Return the options of the query."""
        return self._options

    # ------------------------------------------------------------------ calls by Spark

    def initial(self) -> Offset:
        """Return the offset at which every new query begins."""
        return Offset(self._options.consumer)

    def latest(self, start: Offset, most: int | None) -> Offset:
        """Ack the messages up to `start` and claim the next micro-batch; return `start` itself if there is none.

        Args:
            start: the offset whose micro-batch Spark has recorded as done.
            most: the largest number of messages; None for all that the queue holds.

        Raises:
            ConfigurationError: another query uses this consumer, or the checkpoint is not of its epoch.
            RedisUnavailableError: Redis cannot be reached.
        """
        self.settle(start)
        self._acquire(start)
        acquired = self._consumer_lease()
        base = start.number if start.epoch else 0
        if not self._caught_up:
            self._catch_up(acquired, base)
            self._caught_up = True
        self._confirm(acquired.epoch, base)
        end = self._held_beyond(base)
        if end == base:
            end = self._claim(acquired.epoch, base, most)
        return start if end == base else replace(start, epoch=acquired.epoch, number=end)

    def latest_of_all(self) -> Offset:
        """Return the next offset to a Spark that does not pass the start: claims continue after the last plan.

        While it holds messages that may be done, it claims no more and answers an offset with another turn: Spark then
        runs an empty micro-batch and commits the one before. Spark also asks for its reports, without running a
        micro-batch afterwards; messages that were claimed then would wait for the next run.
        """
        last = self._last or self.initial()
        self._acquire(last)
        acquired = self._consumer_lease()
        base = last.number if last.epoch else 0
        first = not self._caught_up
        if first:
            self._adopt_open(acquired, max(0, acquired.floor), base)
            self._caught_up = True
        self._confirm(acquired.epoch, base, floor=self._committed)
        end = self._held_beyond(base)
        if end == base and (first or not self._held):
            end = self._claim(acquired.epoch, base, self._options.max_messages_per_trigger, wait=not self._held)
        if end > base:
            last = replace(last, epoch=acquired.epoch, number=end)
        elif self._held:
            last = replace(last, turn=last.turn + 1)
        self._last = last
        return last

    def slices(self, start: Offset, end: Offset) -> list[Slice]:
        """Return what the tasks of a micro-batch read, the same at every call; nothing if `start` equals `end`.

        Raises:
            ConfigurationError: another query uses this consumer.
            LeaseLostError: messages of it are no longer leased to this query, unless `failOnDataLoss` is false.
        """
        self._last = end
        if end.epoch == 0 or (end.epoch, end.number) == (start.epoch, start.number):
            return []
        self._acquire(end)
        if start.epoch not in (0, end.epoch):
            raise self._of_another_epoch(start.epoch)
        base, floor = start.number if start.epoch else 0, self._consumer_lease().floor
        if base < floor < end.number:  # planned from a checkpoint older than the last ack
            base = floor
        leases = [self._planned(number) for number in range(base + 1, end.number + 1)]
        parts = [Part(lease.id, lease.opening, lease.unsettled) for lease in leases if lease is not None]
        return cut(parts, self._options.num_partitions) if parts else []

    def settle(self, done: Offset) -> None:
        """Ack the leases up to an offset; log a failure, because an error would end the query."""
        if self._acquired is None or done.epoch != self._acquired.epoch:
            return
        self._committed = max(self._committed, done.number)
        self._emptied = {number for number in self._emptied if number > done.number}
        for number in sorted(number for number in self._held if number <= done.number):
            if not self._ack(self._held[number]):
                return  # each of the others would use its own retry budget
            del self._held[number]

    def prepare_available_now(self) -> None:
        """Claim at most the messages that are ready now; later messages do not prolong the query."""
        self._budget = self._queue.depth().ready

    def progress(self) -> dict[str, Any] | None:
        """Return the latest offset, the backlog and the redeliveries, for Spark's progress reports.

        Spark takes these from a Python source as its latest offset, and has no other metrics of one.
        """
        if self._acquired is None:
            return None
        number = max(self._held, default=self._committed)
        depth = self._queue.depth()
        return {
            **Offset(self._options.consumer, self._acquired.epoch, number).to_dict(),
            "ready": depth.ready,
            "oldest_ready_age_ms": int((depth.oldest_ready_age_seconds or 0) * 1000),
            "redelivered": self._redelivered,
        }

    def stop(self) -> None:
        """Stop the heartbeats. Leases stay until they expire, because the query may be started again."""
        for lease in self._held.values():
            lease.stop_heartbeat()

    # ------------------------------------------------------------------ the consumer's lease

    def _acquire(self, offset: Offset) -> None:
        if self._acquired is None:
            self._acquired = self._reader.acquire(offset.epoch or NEW)
            self._add_to_budget(release_older(self._queue, self._options.consumer, self._acquired.left))
        elif offset.epoch not in (0, self._acquired.epoch):
            raise self._of_another_epoch(offset.epoch)

    def _consumer_lease(self) -> ConsumerLease:
        assert self._acquired is not None
        return self._acquired

    def _confirm(self, epoch: int, base: int, *, floor: int | None = None) -> None:
        try:
            self._reader.confirm(
                epoch, floor=base if floor is None else floor, top=self._last_settled(base) + _MAX_LEASES
            )
        except ConfigurationError:
            for lease in self._held.values():  # so that the other query need not wait for them
                self._release(lease)
            self._held.clear()
            raise

    def _catch_up(self, acquired: ConsumerLease, base: int) -> None:
        """Ack the done micro-batches of an earlier process, and adopt the leases that it claimed after them."""
        floor = acquired.floor if acquired.floor >= 0 else max(0, base - _MAX_LEASES)
        if floor > base:
            self._lost(
                f"the checkpoint is behind: it says that {base} leases of epoch {acquired.epoch} are done, but {floor} "
                "were acked; it was restored from an older state"
            )
        for number in range(floor + 1, base + 1):
            lease = self._held.pop(number, None) or self._adopt(number)
            if lease is not None and not self._ack(lease):
                self._hold(number, lease)
        self._adopt_open(acquired, max(base, floor), base)

    def _adopt_open(self, acquired: ConsumerLease, floor: int, base: int) -> None:
        """Adopt the open leases after `floor`: all up to `base`, and those after it up to the first gap.

        An open lease after a gap was never planned, so it is released.
        """
        gap = False
        for number in range(floor + 1, max(acquired.top, base if acquired.top >= 0 else base + _MAX_LEASES) + 1):
            lease = self._held.get(number) or self._adopt(number, buries=number > base)
            if lease is None and self._columns.mode == "BURY" and self._was_emptied(number):
                continue
            gap = gap or (lease is None and number > base)
            if lease is not None and gap:
                self._held.pop(number, None)
                self._release(lease)
                self._add_to_budget(len(lease))
            elif lease is not None:
                self._hold(number, lease)

    # ------------------------------------------------------------------ leases

    def _claim(self, epoch: int, base: int, most: int | None, *, wait: bool = True) -> int:
        """Claim a micro-batch after `base`; return the number of its last lease."""
        if self._budget is not None:
            most, wait = self._budget if most is None else min(most, self._budget), False
        size = None if most is None else self._options.max_bytes_per_trigger
        capacity = Capacity(self._paced(most), size, self._average, self._queue.session.rules.claim_bytes)
        end, first, more = base, self._last_settled(base), True
        for number in range(first + 1, first + _MAX_LEASES + 1):
            if not more or not capacity.next_limit:
                break
            name = lease_id(self._options.consumer, epoch, number)
            lease = self._open(
                name, capacity.next_limit, base, self._options.poll_wait_seconds if wait and end == base else 0
            )
            if lease.state is LeaseState.ACKED and lease.counts.acked == 0:  # a process buried all, and died
                self._emptied.add(number)
                end = number
                continue
            if lease.state is LeaseState.ACKED:
                self._lost(f"the checkpoint is behind: lease {name!r} was acked; it was restored from an older state")
                continue
            if not lease:
                break
            end, more = number, capacity.use(lease)
            self._pace.use(len(lease))
            if lease.leased.stored.delivery_count(0) > 1:  # redelivered messages are claimed by themselves
                self._redelivered += len(lease)
            self._add_to_budget(-len(lease))
            if self._is_left_with_messages(number, lease):
                self._hold(number, lease)
        self._average = capacity.average
        return end

    def _paced(self, most: int | None) -> int | None:
        """Return how many messages may be claimed by `maxMessagesPerSecond` too; wait a moment if that is none now.

        A query of `availableNow` ends at a trigger that claims nothing, so it waits as long as it must.
        """
        allowed = self._pace.allowance()
        while allowed == 0 and self._budget != 0:
            pause = max(0.001, self._pace.seconds_to_next())  # rounding may leave less than a message for no time
            time.sleep(pause if self._budget is not None else min(pause, self._options.poll_wait_seconds))
            allowed = self._pace.allowance()
            if self._budget is None:
                break
        if allowed is None:
            return most
        return allowed if most is None else min(most, allowed)

    def _open(self, name: str, most: int, base: int, wait_seconds: float) -> Lease:
        """Claim one lease.

        A lease that is open already belongs either to a fenced reader that claimed late, and is taken over, or to a
        reader that acquired the consumer while this one waited, and is not.
        """
        claim = partial(
            self._queue.claim, most, lease_id=name, lease_seconds=self._options.lease_seconds, heartbeat=False
        )
        lease = claim(wait_seconds=wait_seconds)
        if lease.state is LeaseState.HELD:
            self._confirm(self._consumer_lease().epoch, base, floor=0)
            lease = claim(take_over_after_seconds=0)
        return lease

    def _last_settled(self, base: int) -> int:
        """Return the last settled number: `base`, unless the checkpoint is of an older state."""
        return max(base, self._consumer_lease().floor)

    def _add_to_budget(self, messages: int) -> None:
        if self._budget is not None:
            self._budget += messages

    def _hold(self, number: int, lease: Lease) -> None:
        self._held[number] = lease
        lease.leased.drop_payloads()  # the executors read them
        lease.start_heartbeat()

    def _held_beyond(self, base: int) -> int:
        """Return the last number of the leases that are held after `base` without a gap."""
        end = first = self._last_settled(base)
        while end + 1 in self._emptied or (end + 1 in self._held and not self._held[end + 1].lost):
            end += 1
        return base if end == first else end

    def _adopt(self, number: int, *, buries: bool = False) -> Lease | None:
        lease = adopt(self._queue, self._lease_id(number), self._options.lease_seconds)
        if lease is None or not buries:  # what is done has been read, also where another schema was declared then
            return lease
        return lease if self._is_left_with_messages(number, lease) else None

    def _is_left_with_messages(self, number: int, lease: Lease) -> bool:
        """Bury the messages of a lease that do not fit; return whether there are others."""
        try:
            bury_unfit(lease, self._columns)
        except LeaseLostError as error:
            _log.warning("consumer %r: %s", self._options.consumer, error)
            return True
        if not lease.unsettled:
            self._emptied.add(number)
        return bool(lease.unsettled)

    def _was_emptied(self, number: int) -> bool:
        """Return whether all messages of a lease were buried, by this process or an earlier one."""
        if number not in self._emptied:
            seen = read_lease(self._queue, self._lease_id(number))
            if seen.state == "ended" and seen.how == "acked" and seen.acked == 0:
                self._emptied.add(number)
        return number in self._emptied

    def _lease_id(self, number: int) -> str:
        return lease_id(self._options.consumer, self._consumer_lease().epoch, number)

    def _planned(self, number: int) -> Lease | None:
        """Return a lease of a planned micro-batch; adopt it if an earlier process claimed it."""
        lease = self._held.get(number)
        if lease is None:
            lease = self._adopt(number, buries=True)
            if lease is not None:
                self._hold(number, lease)
            elif self._was_emptied(number):
                return None
        if lease is None or lease.lost:
            self._lost(f"lease {self._lease_id(number)!r} of a micro-batch that Spark has planned is no longer held")
            return None
        return lease

    def _ack(self, lease: Lease) -> bool:
        """Ack a lease; return False if the ack must be tried again."""
        try:
            lease.ack()
        except LeaseLostError as error:
            _log.warning("consumer %r: %s", self._options.consumer, error)
        except RedisMessageQueueError as error:
            _log.warning("consumer %r could not ack lease %r yet: %s", self._options.consumer, lease.id, error)
            return False
        lease.stop_heartbeat()
        return True

    def _release(self, lease: Lease) -> None:
        lease.stop_heartbeat()
        try:
            lease.release()
        except RedisMessageQueueError as error:
            _log.warning("consumer %r could not release lease %r: %s", self._options.consumer, lease.id, error)

    def _lost(self, what: str) -> None:
        text = (
            f"consumer {self._options.consumer!r} of {place_of(self._queue)}: {what}. Its messages were acked, or "
            f"expired after leaseSeconds={self._options.lease_seconds:g} without this query and are delivered again"
        )
        if self._options.fail_on_data_loss:
            raise LeaseLostError(
                f"{text}; set failOnDataLoss=false to continue without them", lease_id=self._options.consumer, lost=()
            )
        _log.warning("%s; the query continues without them (failOnDataLoss=false)", text)

    def _of_another_epoch(self, epoch: int) -> ConfigurationError:
        return ConfigurationError(
            f"the checkpoint is of epoch {epoch} of consumer {self._options.consumer!r}, and the query is in epoch "
            f"{self._consumer_lease().epoch}: another query was started with this consumer since; give every query a "
            "consumer of its own"
        )
