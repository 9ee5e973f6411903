"""A queue of jobs: each has an id, a status and a result, and can be waited for."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, ClassVar, TypeAlias, Unpack

from sluicegate import checks, spans
from sluicegate._arguments import refuse_unfit_gateway
from sluicegate._lease_base import ClaimedBatch, LeaseState, OnBatchError
from sluicegate._session import new_id
from sluicegate.asyncio.batches import Batch
from sluicegate.asyncio.consumer import QueueConsumer
from sluicegate.asyncio.gateway import Client, Gateway, RedisGateway
from sluicegate.asyncio.jobs.handle import Job
from sluicegate.asyncio.jobs.lease import JobLease
from sluicegate.asyncio.publisher import Publisher
from sluicegate.asyncio.session import open_session
from sluicegate.clock import elapsed_clock
from sluicegate.config import QueueConfig, QueueSpec
from sluicegate.core.call import alone
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.entry import was_delivered
from sluicegate.core.json import TypedDictLike
from sluicegate.core.keys import consumer_name
from sluicegate.core.tracking import ENDED_STATUSES, JobStatus, batch_call_ids, batch_name, job_member
from sluicegate.core.transitions.jobs import (
    JobParts,
    cancel_job_call,
    keep_jobs_call,
    list_jobs_operation,
    peek_jobs_operation,
)
from sluicegate.core.transitions.reap_expired import reap_expired_operation
from sluicegate.errors import ConfigurationError
from sluicegate.jobs.enqueue import (
    MAX_JOB_BYTES_PER_CALL,
    MAX_JOBS_PER_CALL,
    JobKindNames,
    job_batches,
    job_headers,
)
from sluicegate.jobs.kind import SET_BY_KIND, JobKind, JobKinds, refuse_options
from sluicegate.jobs.verdicts import JobRules
from sluicegate.jobs.view import EnqueueReport, JobStats, check_ids, late_error, status_of, unknown_job
from sluicegate.json_default import json_function
from sluicegate.message import Message
from sluicegate.options import QueueOptions
from sluicegate.report import PublishReport
from sluicegate.spec import SpecKind

__all__ = ["RedisJobQueue"]

JobIds: TypeAlias = list[str]
JobList: TypeAlias = list[Job]
JobMessages: TypeAlias = list[Message]
_LISTED = ("waiting", "delayed", "running", "completed", "failed", "cancelled")
_CANCEL_ROUNDS = 5
_LONGEST_SLEEP_SECONDS = 60.0  # notifications, and the looks between them, make it shorter
_DEFAULT_KIND = JobKind()


class RedisJobQueue(QueueConsumer):
    """A queue of jobs on Redis: a job has an id, a status and a result, and its enqueuer can wait for its end.

    A job is a message, so all that a queue promises holds for it: leases, deduplication, delays, dead letters, events.
    Constructing a queue does no I/O. Objects are safe to share between threads or tasks. `async with` closes it.

    Args:
        name: of the queue; any text with a visible character in it.
        client: a `redis.asyncio.Redis` or `RedisCluster`; it stays the caller's to close.
        url: instead of a client, as for `RedisMessageQueue`.
        gateway: instead of both, a configured `RedisGateway` or another `Gateway`.
        kinds: how often the jobs of each kind are tried, and how long they may be silent.
        default_kind: the same for every other kind.
        result_ttl_seconds: how long the record of a job, with its result, is kept after its end.
        max_ended: most records of ended jobs; the oldest are removed first.
        max_result_bytes: largest result as stored; a larger one is a `PayloadTooLargeError`.
        worker: the name under which this object claims, as `Job.worker` shows it; None: host and process id.
        options: of a queue, but for those that are a kind's: `visibility_timeout_seconds`, `max_delivery_count` and
            `retry_backoff`.

    Raises:
        ConfigurationError: an option that cannot work as given.
    """

    kind: ClassVar[SpecKind] = "jobs"

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        url: str | None = None,
        gateway: Gateway | None = None,
        kinds: Mapping[str, JobKind] | None = None,
        default_kind: JobKind = _DEFAULT_KIND,
        result_ttl_seconds: float = 86_400,
        max_ended: int = 10_000,
        max_result_bytes: int = 1_048_576,
        worker: str | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        refuse_options(options)
        checks.positive("result_ttl_seconds", result_ttl_seconds)
        checks.count("max_ended", max_ended)
        checks.count("max_result_bytes", max_result_bytes)
        self._kinds = JobKinds(kinds, default_kind)
        self._ttl_seconds, self._max_ended, self._keeps = result_ttl_seconds, max_ended, False
        self._max_result_bytes = max_result_bytes
        given: dict[str, Any] = {**options, **self._kinds.queue_options()}
        config = QueueConfig(**given)
        self._rules = JobRules(self._kinds, json_function(config.json_default), max_result_bytes)
        if sum(place is not None for place in (client, url, gateway)) != 1:
            raise ConfigurationError(f"queue {name!r} needs exactly one of client, url and gateway")
        if gateway is not None:
            refuse_unfit_gateway(gateway, ("execute", "send", "wait", "aclose"))
        owns_gateway = gateway is None
        gateway = gateway or RedisGateway(
            redis_client=client,
            url=url,
            retry_budget_seconds=config.retry_budget_seconds,
            retry_initial_delay_seconds=config.retry_initial_delay_seconds,
            retry_max_delay_seconds=config.retry_max_delay_seconds,
        )
        super().__init__(open_session(name, config, gateway), owns_gateway=owns_gateway)
        self.session.consumer = consumer_name(worker or f"{socket.gethostname()}:{os.getpid()}")
        self._publisher = Publisher(self.session)

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> RedisJobQueue:
        """Make the queue that a spec describes. It connects at its first command.

        Raises:
            ConfigurationError: the spec is of something else; `open_spec` makes any of them.
        """
        if spec.kind != cls.kind:
            raise ConfigurationError(
                f"the spec of {spec.name!r} is of kind {spec.kind!r}, not {cls.kind!r}; use sluicegate.open_spec(spec)"
            )
        options = dict(spec.options)
        publishes = options.pop("publishes", True)
        queue = cls(spec.name, url=spec.url, **options)
        queue.session.publishes = publishes
        return queue

    def spec(self) -> QueueSpec:
        """This queue as executors and triggers get it: JSON, without its secret.

        Raises:
            ConfigurationError: the queue was made from a client, or its URL carries a password.
        """
        spec = super().spec()
        options = {name: value for name, value in spec.options.items() if name not in SET_BY_KIND}
        options |= self._kinds.portable()
        options["result_ttl_seconds"], options["max_ended"] = self._ttl_seconds, self._max_ended
        options["max_result_bytes"] = self._max_result_bytes
        return QueueSpec(spec.name, spec.url, options, spec.kind, spec.group)

    # ------------------------------------------------------------------ enqueue
    async def enqueue(
        self,
        payload: Mapping[str, Any] | Sequence[Any] | TypedDictLike,
        *,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> str:
        """Enqueue one job.

        Args:
            payload: a dict or list, stored as JSON.
            kind: of the job; None: the payload's field `kind`, and no kind without one.
            headers: a few names and texts that accompany the job.
            delay_seconds: how long no worker may claim it.
            due_at: instead, when it becomes claimable: an aware datetime.
            durability: what the enqueue waits for, as for `RedisMessageQueue.publish`.

        Returns:
            The job's id. When its deduplication key is held, the id of the job that holds it.

        Raises:
            TypeError, ValueError: the payload or key cannot be stored; the text names the path.
            QueueBackpressureError: `max_pending_length` is reached; nothing was stored.
            PublishUnknownError: Redis stayed away, and the outcome is unknown; its `ids` has the job's id.
        """
        report = await self.enqueue_many(
            (payload,), kind=kind, headers=headers, delay_seconds=delay_seconds, due_at=due_at, durability=durability
        )
        return report.ids[0]

    async def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any] | Sequence[Any] | TypedDictLike],
        *,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        partial: bool = False,
        batch_id: str | None = None,
    ) -> EnqueueReport:
        """Enqueue jobs in calls of at most 400 and 512 kB, as `RedisMessageQueue.publish_many` publishes messages.

        With a `batch_id` the jobs are a batch, as for `batch`: a repeat under the same id enqueues only what an earlier
        attempt did not, and answers with the same job ids.

        Args:
            payloads: of the jobs; see `enqueue`.
            kind: of all jobs; None: the field `kind` of each payload.
            headers: the same for all jobs.
            delay_seconds: the same for all jobs.
            due_at: the same for all jobs.
            durability: what each call waits for.
            partial: when `max_pending_length` leaves room for some jobs only, enqueue the first that fit.
            batch_id: a name that a retry would use again; None for jobs that are no batch.

        Raises:
            BatchChangedError: the batch was enqueued before with other jobs.
            TypeError, ValueError: a payload or key cannot be stored; the text names the path.
            QueueBackpressureError: `max_pending_length` is reached; nothing of the last call was stored.
            PublishUnknownError: Redis stayed away, and the outcome of a call is unknown.
        """
        if batch_id is not None:
            if partial:
                raise ConfigurationError("partial=True cannot be combined with batch_id: a batch is enqueued whole")
            batch = await self.batch(
                payloads,
                batch_id=batch_id,
                kind=kind,
                headers=headers,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
            )
            assert batch.report is not None
            return EnqueueReport.of(batch.report, batch_id)
        named, names = job_headers(kind, headers), JobKindNames(payloads, kind)
        await self._keep_as_configured()
        report = PublishReport()
        with spans.publishing(self.session, named) as span:
            ahead = self.session.publishing.batches(
                names,
                span.headers,
                new_id=new_id,
                most=MAX_JOBS_PER_CALL,
                max_bytes=MAX_JOB_BYTES_PER_CALL,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
                partial=partial,
            )
            async for done in self._publisher.publish_batches(job_batches(ahead, names)):
                report.add(done)
                span.published(done)
        return EnqueueReport.of(report)

    async def batch(
        self,
        payloads: Iterable[Mapping[str, Any] | Sequence[Any] | TypedDictLike],
        *,
        batch_id: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
        retention_seconds: float = 7 * 86400,
    ) -> Batch:
        """Enqueue jobs as a unit that is complete once all of them have ended; see `RedisMessageQueue.batch`.

        The ids of the jobs follow from the batch's id, so that a repeat answers with the same ones.

        Args:
            payloads: of the jobs; see `enqueue`.
            batch_id: a name that a retry would use again, up to 1,000 characters; made by the library when left out.
            kind: of all jobs; None: the field `kind` of each payload.
            headers: the same for all jobs.
            delay_seconds: the same for all jobs.
            due_at: the same for all jobs.
            durability: what each call waits for.
            retention_seconds: how long the batch is known after it has completed.

        Raises:
            BatchChangedError: the batch was enqueued before with other jobs.
        """
        name = new_id().decode() if batch_id is None else batch_id
        tracked, named, names = batch_name(name), job_headers(kind, headers), JobKindNames(payloads, kind)
        await self._keep_as_configured()
        with spans.publishing(self.session, named) as span:
            ahead = self.session.publishing.batches(
                names,
                span.headers,
                new_id=batch_call_ids(tracked),
                most=MAX_JOBS_PER_CALL,
                max_bytes=MAX_JOB_BYTES_PER_CALL,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
                tracked=tracked,
            )
            report = await self._publisher.publish_tracked(name, job_batches(ahead, names), retention_seconds)
            span.published(report)
        return Batch(self.session, name, report)

    # ------------------------------------------------------------------ claim

    async def claim(
        self,
        limit: int = 1,
        *,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        lease_id: str | None = None,
        take_over_after_seconds: float | None = None,
        retention_seconds: float | None = None,
        remember_empty: bool = False,
        heartbeat: bool = True,
        on_batch_error: OnBatchError = "release",
        exclude_run: str | None = None,
    ) -> JobLease:
        """Lease up to `limit` jobs, as `RedisMessageQueue.claim` leases messages.

        Jobs whose worker was silent for too long are returned to the queue first. A job that has used up its kind's
        `max_attempts` in that way has failed, and one whose cancellation was asked for is cancelled; neither is in the
        lease.

        Args:
            limit: the most jobs to lease, up to 10,000.
            lease_seconds: the lease's life without a heartbeat; default: the longest visibility timeout among the kinds
                of its jobs.
            wait_seconds: how long to wait for a first job; 0 never blocks.
            lease_id: a name that a retry would use again; made by the library when left out.
            take_over_after_seconds: when the lease of this id may be taken over from a silent consumer.
            retention_seconds: how long the end of this lease is remembered.
            remember_empty: remember an `EMPTY` answer under this `lease_id` for ten minutes.
            heartbeat: extend in the background inside the `with` block.
            on_batch_error: what happens to jobs already yielded when the block raises: `release` or `ack`.
            exclude_run: a run that does not claim again what it returned itself.

        Raises:
            ConfigurationError: an argument that cannot work.
            RedisUnavailableError: Redis cannot be reached.
        """
        deadline = elapsed_clock() + wait_seconds
        while True:
            lease = await super().claim(
                limit,
                lease_seconds=lease_seconds,
                wait_seconds=max(0.0, deadline - elapsed_clock()) if wait_seconds else wait_seconds,
                lease_id=lease_id,
                take_over_after_seconds=take_over_after_seconds,
                retention_seconds=retention_seconds,
                remember_empty=remember_empty,
                heartbeat=heartbeat,
                on_batch_error=on_batch_error,
                exclude_run=exclude_run,
            )
            assert isinstance(lease, JobLease)
            if lease.state is not LeaseState.OPEN:
                return lease
            await self._leave_out(lease)
            if lease:
                break
            if lease_id is not None:  # the lease of this id is worked on, as its next claim will say
                return lease
        longest = self._rules.longest_seconds(lease.messages)
        if lease_seconds is None and longest > self._kinds.shortest_seconds:
            await lease.extend(longest)
        return lease

    async def claim_jobs(
        self, limit: int = 1, *, wait_seconds: float = 0, lease_seconds: float | None = None, heartbeat: bool = True
    ) -> JobLease:
        """Lease up to `limit` jobs; `claim` with the arguments that a worker needs."""
        return await self.claim(limit, wait_seconds=wait_seconds, lease_seconds=lease_seconds, heartbeat=heartbeat)

    async def reclaim_stuck(self) -> JobIds:
        """Take jobs back from workers that were silent for longer than their lease, for others to claim.

        Every claim does that, too, so that a schedule for it is needed only while no worker claims.

        Returns:
            The ids of these jobs. One that has used up its attempts has failed.
        """
        session = self.session
        ids = await session.runner.run(
            reap_expired_operation(session.keys, session.rules, emits_events=session.runner.emits_events)
        )
        found = await self.read(ids, whole=False)
        return [parts.id for parts in found if status_of(parts) in ("waiting", "failed")]

    # ------------------------------------------------------------------ look

    async def get(self, job_id: str) -> Job:
        """Return a job by its id.

        Raises:
            JobNotFoundError: there is none, or its record was removed after its end.
        """
        found = await self.get_many([job_id])
        if job_id not in found:
            raise unknown_job(self.name, job_id)
        return found[job_id]

    async def get_many(self, ids: Iterable[str]) -> dict[str, Job]:
        """Return jobs by their ids, with 500 in a call; ids that are not known are left out."""
        found = await self.read(check_ids(ids))
        return {parts.id: Job(self, parts) for parts in found if parts.is_known}

    async def list(self, status: JobStatus, limit: int = 100) -> JobList:
        """List jobs by their status: those to be claimed next first, or those that ended last.

        Args:
            status: `waiting`, `delayed`, `running`, `completed`, `failed` or `cancelled`.
            limit: most jobs. A job that changes its status meanwhile may be missed.
        """
        checks.one_of("status", status, _LISTED)
        checks.count("limit", limit)
        if status in ENDED_STATUSES:
            ids = await self.session.runner.run(list_jobs_operation(self.session.keys, status, limit))
        else:
            ids = await self._ids_of(status, limit)
        found = await self.read(ids[:limit])
        return [job for job in (Job(self, parts) for parts in found if parts.is_known) if job.status == status]

    async def stats(self) -> JobStats:
        """Return the totals of the queue since it exists, and how many jobs wait, run and are dead now."""
        totals, depth = await super().stats(), await self.depth()
        values = {each.name: getattr(totals, each.name) for each in fields(totals)}
        return JobStats(**values, waiting=depth.ready, delayed=depth.delayed, running=depth.in_flight, dead=depth.dead)

    async def wait(self, ids: Iterable[str], timeout_seconds: float | None = None) -> dict[str, Job]:
        """Wait until all of these jobs have ended: completed, failed or cancelled.

        Args:
            ids: of the jobs.
            timeout_seconds: how long to wait; None waits without end, 0 only looks.

        Returns:
            The jobs by their ids, in their order.

        Raises:
            TimeoutError: some have not ended in time; they run on.
            JobNotFoundError: the record of one was removed.
        """
        wanted = check_ids(ids)
        if timeout_seconds is not None:
            checks.not_negative("timeout_seconds", timeout_seconds)
        deadline = math.inf if timeout_seconds is None else elapsed_clock() + timeout_seconds
        left = await self._not_ended(wanted)
        while left:  # those that end while one is waited for cost no wait of their own
            await self.read_ended(left[0], deadline, len(left))
            left = await self._not_ended(left[1:])
        return {parts.id: Job(self, parts) for parts in await self.read(wanted)}

    # ------------------------------------------------------------------ cancel

    async def cancel(self, ids: str | Iterable[str]) -> JobIds:
        """Remove jobs that wait, and ask the workers of those that run to stop.

        A worker sees the request as `job.cancel_requested` with its next heartbeat, extension or update. It may end the
        job as cancelled, or complete it. One that fails, or whose worker dies, is cancelled instead of tried again.
        Finding waiting jobs reads through the queue in bounded steps, so it costs as much as the queue is long.

        Args:
            ids: of jobs; one or several.

        Returns:
            The ids of those that were removed, or whose worker was asked. One that has ended, or is unknown, is not
            among them.
        """
        left = check_ids([ids] if isinstance(ids, str) else ids)
        heeded: set[str] = set()
        for _ in range(_CANCEL_ROUNDS):  # a job may be claimed or returned between its look and its cancel
            statuses = {parts.id: status_of(parts) for parts in await self.read(left, whole=False)}
            heeded.update(await super().cancel([one for one in left if statuses[one] in ("waiting", "delayed")]))
            for one in left:
                if statuses[one] == "running" and await self._ask_to_stop(one):
                    heeded.add(one)
            left = [one for one in left if one not in heeded and statuses[one] in ("waiting", "delayed", "running")]
            if not left:
                break
        return [one for one in check_ids([ids] if isinstance(ids, str) else ids) if one in heeded]

    async def _not_ended(self, ids: Sequence[str]) -> JobIds:
        """Return those of the jobs that have not ended.

        Raises:
            JobNotFoundError: one is unknown.
        """
        found = await self.read(ids, whole=False)
        unknown = next((parts.id for parts in found if not parts.is_known), None)
        if unknown is not None:
            raise unknown_job(self.name, unknown)
        return [parts.id for parts in found if status_of(parts) not in ENDED_STATUSES]

    async def _ask_to_stop(self, job_id: str) -> bool:
        status: str = await self.session.runner.run(alone(cancel_job_call(self.session.keys, job_id.encode())))
        return status == "running"

    # ------------------------------------------------------------------ parts

    def keep_as_stored(self) -> None:
        """Leave how ended jobs are kept as it is set in Redis. Internal: for tools that enqueue in somebody's queue."""
        self._keeps = True

    async def _keep_as_configured(self) -> None:
        """Set how ended jobs are kept, once per object: who enqueues decides it, whoever works or looks."""
        if not self._keeps:
            await self.session.runner.run(
                alone(keep_jobs_call(self.session.keys, ttl_seconds=self._ttl_seconds, max_ended=self._max_ended))
            )
            self._keeps = True

    async def read(self, ids: Sequence[str], *, whole: bool = True) -> Sequence[JobParts]:
        """Read what is stored of jobs. Internal: `get_many` returns it in a readable form."""
        return await self.session.runner.run(peek_jobs_operation(self.session.keys, ids, whole=whole))

    async def read_ended(self, job_id: str, deadline: float, left: int = 1) -> JobParts:
        """Wait for the end of one job, and return what is stored of it. Internal: see `wait` and `Job.result`.

        Args:
            job_id: the job.
            deadline: when to give up, by `elapsed_clock`.
            left: jobs that the caller waits for, for the error.

        Raises:
            TimeoutError: the time is over, or this object is stopping.
            JobNotFoundError: there is no such job.
        """
        stopping = self.session.activity.stopping
        if elapsed_clock() >= deadline:
            if ended := await self._ended(job_id):
                return ended
            raise late_error(self.name, job_id, left, stopping=False)
        async with self.session.notices.watching(job_member(job_id.encode())) as watch:
            while True:
                if ended := await self._ended(job_id):
                    return ended
                seconds = deadline - elapsed_clock()
                if seconds <= 0 or stopping():
                    raise late_error(self.name, job_id, left, stopping=seconds > 0)
                await watch.wait(min(_LONGEST_SLEEP_SECONDS, seconds), stopping)

    async def _ended(self, job_id: str) -> JobParts | None:
        """Return what is stored of a job that has ended; None if it has not."""
        async with self.session.notices.reading:
            (parts,) = await self.read([job_id])
        if not parts.is_known:
            raise unknown_job(self.name, job_id)
        return parts if status_of(parts) in ENDED_STATUSES else None

    async def _ids_of(self, status: str, limit: int) -> JobIds:
        if status == "running":
            return [held.id for held in await self.peek(limit, state="in_flight")]
        if status == "delayed":
            return [message.id for message in await self.peek(limit, state="delayed")]
        returned = await self.peek(limit, state="returned")
        pending = await self.peek(limit - len(returned), state="pending") if len(returned) < limit else []
        return [message.id for message in (*returned, *pending)]

    async def _leave_out(self, lease: JobLease) -> None:
        """Settle the jobs that no worker may try again: their attempts are used up, or they are to be cancelled."""
        over = self._rules.exhausted(lease.messages)
        tried = {message.id: message for message in lease.messages if was_delivered(message.entry)}
        for message in over:
            tried.pop(message.id, None)
        asked: JobMessages = []
        if tried:
            found = await self.read([*tried], whole=False)
            asked = [tried[parts.id] for parts in found if parts.cancel_asked is not None]
        if over or asked:
            await lease.leave_out(over, asked)

    def _lease_of(self, batch: ClaimedBatch) -> JobLease:
        return JobLease(self.session, batch, self._rules)
