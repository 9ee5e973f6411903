"""A lease over jobs: each is completed with a result, failed with an error, or updated while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from sluicegate import checks
from sluicegate._lease_base import ClaimedBatch, Verdict
from sluicegate.asyncio.lease import Lease
from sluicegate.core.call import Operation
from sluicegate.core.json import loads
from sluicegate.core.transitions.jobs import JobParts, JobUpdate, peek_jobs_operation, update_job_call
from sluicegate.errors import AlreadySettledError, LeaseLostError
from sluicegate.jobs.verdicts import CANCELLED, EXHAUSTED, JobRules, kind_name
from sluicegate.message import Message

if TYPE_CHECKING:
    from sluicegate.asyncio.session import Session

__all__ = ["ClaimedJob", "JobLease", "Jobs"]

_MAX_NOTE_LENGTH = 2000


def _with_list(verdict: Verdict) -> Verdict:
    """Return a verdict whose messages can be read more than once."""
    if verdict.messages is None or isinstance(verdict.messages, (Message, list)):
        return verdict
    return replace(verdict, messages=list(verdict.messages))


class ClaimedJob:
    """A job that this worker holds.

    Attributes:
        id: the job's id.
        message: its message in the lease.
    """

    __slots__ = ("_lease", "_payload", "id", "message")

    def __init__(self, lease: JobLease, message: Message) -> None:
        self._lease = lease
        self._payload: Any = self
        self.message = message
        self.id = message.id

    @property
    def payload(self) -> Any:
        """Return the payload, decoded once; raise `ValueError` if it is not JSON."""
        if self._payload is self:
            self._payload = loads(self.message.payload)
        return self._payload

    @property
    def kind(self) -> str:
        """Return the job's kind; `default` for none."""
        return kind_name(self.message)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers given at the enqueue."""
        return self.message.headers

    @property
    def attempts(self) -> int:
        """Return the number of attempts begun, including this one."""
        return self.message.delivery_count

    @property
    def enqueued_at(self) -> datetime:
        """Return when Redis accepted the job, by the server's clock."""
        return self.message.enqueued_at

    @property
    def cancel_requested(self) -> bool:
        """Return whether somebody asked to cancel the job, as far as this process knows.

        It learns that with every heartbeat, extension and update of the lease, without a call of its own.
        """
        return self.id in self._lease.cancel_requests

    async def complete(self, result: Any = None) -> None:
        """Mark the job as completed.

        Args:
            result: a JSON value that `Job.result` returns to whoever waits.

        Raises:
            LeaseLostError: too late: another worker may have the job.
            AlreadySettledError: it has failed, or was cancelled or released, by this lease.
            TypeError, ValueError: JSON cannot carry the result; the text names the path, and nothing was sent.
        """
        await self._lease.complete_many({self: result})

    async def fail(self, error: BaseException | str, *, retry: bool = True, delay_seconds: float | None = None) -> None:
        """Mark this attempt as failed: the job is tried again after a pause, until its kind's `max_attempts`.

        Args:
            error: what went wrong; its class and text are kept with the job.
            retry: False: the job has failed for good, whatever attempts are left.
            delay_seconds: how long it waits for the next attempt; None: as its kind says.

        Raises:
            LeaseLostError: too late: another worker may have the job.
            AlreadySettledError: it has another verdict.
        """
        if not retry:
            await self._lease.bury(self.message, error=error, reason="failed")
            return
        if delay_seconds is None:
            kind = self._lease.rules.kind_of(self.message)
            delay_seconds = kind.pause_seconds(self.attempts, error if isinstance(error, BaseException) else None)
        await self._lease.nack(self.message, delay_seconds=delay_seconds, error=error)

    async def release(self) -> None:
        """Give the job back without working on it; this counts as no attempt, up to three times."""
        await self._lease.release(self.message)

    async def cancel(self) -> None:
        """End the job as cancelled, as its worker does when `cancel_requested` says so."""
        await self._lease.settle(Verdict("discard", self.message, reason=CANCELLED))

    async def update(self, progress: float, note: str = "") -> bool:
        """Store how far the work has come, for whoever reads the job.

        Args:
            progress: any number; by convention from 0 to 1.
            note: a text, of which the first 2,000 characters are kept.

        Returns:
            Whether somebody asked to cancel the job.

        Raises:
            LeaseLostError: the worker no longer holds the job; nothing was stored.
        """
        return await self._lease.update(self, progress, note)

    def __repr__(self) -> str:
        return f"ClaimedJob(id={self.id!r}, attempts={self.attempts})"


class Jobs(Sequence[ClaimedJob]):
    """The jobs of a lease in their order.

    An iteration notes which job is being worked on, so that an exception fails that one.
    """

    __slots__ = ("_by_slot", "_lease")

    def __init__(self, lease: JobLease) -> None:
        self._lease = lease
        self._by_slot: dict[int, ClaimedJob] = {}

    def __len__(self) -> int:
        return len(self._lease)

    @overload
    def __getitem__(self, index: int) -> ClaimedJob: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ClaimedJob]: ...
    def __getitem__(self, index: int | slice) -> ClaimedJob | Sequence[ClaimedJob]:
        if isinstance(index, slice):
            return [self._job(message) for message in self._lease.messages[index]]
        return self._job(self._lease.messages[index])

    def __iter__(self) -> Iterator[ClaimedJob]:
        for message in self._lease:
            yield self._job(message)

    def _job(self, message: Message) -> ClaimedJob:
        job = self._by_slot.get(message.slot)
        if job is None:
            job = self._by_slot[message.slot] = ClaimedJob(self._lease, message)
        return job


class JobLease(Lease):
    """A batch of jobs leased to this worker; everything that holds for a `Lease` holds for it.

    As a context manager it completes the jobs without a verdict, each without a result, when its block ends. When the
    block raises, the current job fails with the error, and waits for its next attempt as its kind says.

    Attributes:
        jobs: the leased jobs, oldest first.
        rules: what the queue decides about them. Internal.
        cancel_requests: ids of jobs that somebody asked to cancel, as far as this process knows.
    """

    def __init__(self, session: Session, batch: ClaimedBatch, rules: JobRules) -> None:
        super().__init__(session, batch)
        self.rules = rules
        self.jobs = Jobs(self)
        self.cancel_requests: set[str] = set()
        self._lost: set[int] = set()
        batch.at_exit = partial(rules.after_error, batch)
        batch.acks_whole = False  # each job has a record of its end
        batch.after_extend = self._look_for_cancels

    async def complete_many(self, results: Mapping[ClaimedJob, Any]) -> None:
        """Complete several jobs in one call, each with its result.

        Args:
            results: the result of each job; see `ClaimedJob.complete`.

        Raises:
            LeaseLostError: some came too late; the others are completed.
            AlreadySettledError: a job has another verdict, or belongs to another lease; nothing was sent.
            TypeError, ValueError: JSON cannot carry a result; the text names the job and the path; nothing was sent.
        """
        same: dict[bytes | None, list[Message]] = {}
        for job, result in results.items():
            try:
                data = self.rules.encode_result(result)
            except (TypeError, ValueError) as error:
                error.add_note(f"this is the result of job {job.id!r}; nothing was sent")
                raise
            same.setdefault(data, []).append(job.message)
        await self.settle(*(Verdict("ack", messages, result=data) for data, messages in same.items()))

    async def settle(self, *verdicts: Verdict) -> None:
        """Give several verdicts at once, as `Lease.settle` does.

        An `ack` completes a job, without a result; a `nack` fails an attempt, and the job for good once its kind allows
        no more; a `bury` fails it for good.
        """
        verdicts = tuple(_with_list(verdict) for verdict in verdicts)
        self._refuse_lost(verdicts)
        try:
            await super().settle(*self.rules.by_kind(self._batch, verdicts))
        except LeaseLostError as error:
            self._lost.update(error.lost)
            raise

    async def leave_out(self, exhausted: Sequence[Message], cancelled: Sequence[Message]) -> None:
        """Settle jobs that no worker may try again, and show the lease without them. Internal.

        Args:
            exhausted: those whose attempts were used up by crashes or lost leases; they have failed.
            cancelled: those whose cancellation was asked for.
        """
        error = "its last attempt ended without a verdict: its worker crashed, or was silent for too long"
        verdicts = [
            Verdict("bury", exhausted, error=error, reason=EXHAUSTED) if exhausted else None,
            Verdict("discard", cancelled, reason=CANCELLED) if cancelled else None,
        ]
        try:
            await self.settle(*(verdict for verdict in verdicts if verdict is not None))
        except LeaseLostError:  # it expired at once, so that the next claim meets these jobs again
            self._batch.drop([*self.messages])
            return
        self._batch.drop([*exhausted, *cancelled])

    async def update(self, job: ClaimedJob, progress: float, note: str = "") -> bool:
        """Store how far the work on a job has come; see `ClaimedJob.update`."""
        session, batch, slot = self._session, self._batch, job.message.slot
        batch.refuse_detached()
        checks.finite("progress", progress)
        if slot not in batch.verdicts.open:
            raise AlreadySettledError(f"job {job.id!r} has a verdict, so it makes no progress").locate(
                queue=session.keys.name, message_id=job.id
            )
        update: JobUpdate = await session.runner.run(self._update(job, float(progress), note))
        if update.is_lost:
            raise LeaseLostError(
                f"lease {self.id!r} no longer holds job {job.id!r}: it is or will be tried again",
                lease_id=self.id,
                lost=(slot,),
            ).locate(queue=session.keys.name, operation="update", message_id=job.id)
        if update.cancel_asked:
            self.cancel_requests.add(job.id)
        return update.cancel_asked

    def _refuse_lost(self, verdicts: Sequence[Verdict]) -> None:
        """Raise again for a job whose verdict came too late: a repeat is no success."""
        if not self._lost:
            return
        named = [verdict.messages for verdict in verdicts if verdict.messages is not None]
        slots = [each.slot for group in named for each in ((group,) if isinstance(group, Message) else group)]
        lost = [slot for slot in slots if slot in self._lost]
        if lost:
            raise LeaseLostError(
                f"lease {self.id!r} is no longer held, as an earlier verdict found out", lease_id=self.id, lost=lost
            ).locate(queue=self._session.keys.name, operation="settle", message_id=self._batch.verdicts.only_id(lost))

    def _update(self, job: ClaimedJob, progress: float, note: str) -> Operation[JobUpdate]:
        update: JobUpdate = yield update_job_call(
            self._session.keys,
            self._batch.claim.request.name,
            self.token,
            job.message.slot,
            job.id.encode(),
            progress=repr(progress).encode(),
            note=note[:_MAX_NOTE_LENGTH].encode(errors="replace"),
        )
        return update

    def _look_for_cancels(self) -> Operation[None]:
        """Read which jobs somebody asked to cancel, with every extension."""
        left = set(self._batch.verdicts.open)
        ids = [message.id for message in self.messages if message.slot in left]
        found: list[JobParts] = yield from peek_jobs_operation(self._session.keys, ids, whole=False)
        self.cancel_requests.update(parts.id for parts in found if parts.cancel_asked is not None)
