"""Looking at a queue and administering it: what takes no lease and publishes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Literal, overload

from sluicegate._arguments import check_peek, ids_of
from sluicegate._session import new_id
from sluicegate.asyncio.session import Session
from sluicegate.core.transitions.cancel import cancel_operation
from sluicegate.core.transitions.depth import depth_operation
from sluicegate.core.transitions.forget import forget_operation
from sluicegate.core.transitions.in_flight import in_flight_operation
from sluicegate.core.transitions.pause import pause_operation, resume_operation
from sluicegate.core.transitions.peek import peek_operation
from sluicegate.core.transitions.purge import purge_operation
from sluicegate.core.transitions.redrive import RedriveRequest, redrive_operation
from sluicegate.core.transitions.repair import repair_operation
from sluicegate.core.transitions.stats import stats_operation
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message
from sluicegate.report import Depth, QueueStats, RedriveReport, RepairReport

__all__ = ["QueueAdministration"]


class QueueAdministration:
    """The part of `RedisMessageQueue` that counts, shows, moves and deletes what is in the queue.

    Attributes:
        name: the queue's name.
        session: what the parts of the queue share. Internal: this distribution's adapters use it, and it may change.
    """

    def __init__(self, session: Session) -> None:
        self.name = session.keys.name
        self.session = session

    @property
    def key(self) -> SimpleNamespace:
        """Return the names of this queue's Redis keys, for use with `redis-cli`."""
        names = ("pending", "returned", "delayed", "leases", "dead", "completed", "failed", "counters")
        return SimpleNamespace(**{name: getattr(self.session.keys, name).decode() for name in names})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # ------------------------------------------------------------------ look

    async def depth(self) -> Depth:
        """Count messages by state, read-only and in one round trip at any number of messages.

        Every 500 expired leases take another round trip. The messages of a lease that is reaped meanwhile may be left
        out; the next count finds them among the returned ones.
        """
        return await self.session.runner.run(depth_operation(self.session.keys))

    @overload
    async def peek(self, count: int = 10, *, state: Literal["dead"], offset: int = 0) -> list[DeadMessage]: ...
    @overload
    async def peek(
        self, count: int = 10, *, state: Literal["completed"], offset: int = 0
    ) -> list[CompletedMessage]: ...
    @overload
    async def peek(self, count: int = 10, *, state: Literal["failed"], offset: int = 0) -> list[FailedAttempt]: ...
    @overload
    async def peek(self, count: int = 10, *, state: Literal["in_flight"], offset: int = 0) -> list[InFlightMessage]: ...
    @overload
    async def peek(self, count: int = 10, *, state: Literal["set_aside"], offset: int = 0) -> list[bytes]: ...
    @overload
    async def peek(
        self, count: int = 10, *, state: Literal["pending", "returned", "delayed"] = "pending", offset: int = 0
    ) -> list[Message]: ...
    async def peek(
        self, count: int = 10, *, state: str = "pending", offset: int = 0
    ) -> (
        list[Message]
        | list[DeadMessage]
        | list[CompletedMessage]
        | list[FailedAttempt]
        | list[InFlightMessage]
        | list[bytes]
    ):
        """Show messages without claiming them.

        The first one is the next to be claimed, the oldest dead letter, the newest record of a history, or the message
        in flight whose lease expires first.

        Args:
            count: maximum number of messages.
            state: `pending`, `returned`, `delayed`, `in_flight`, `dead`, `completed` or `failed`; or `set_aside`, whose
                values are returned as stored.
            offset: number of messages to skip. A message that moves between two calls shifts the others, so pages may
                show a message twice or miss one while others claim.
        """
        check_peek(count, state, offset)
        if state == "in_flight":
            held = await self.session.runner.run(in_flight_operation(self.session.keys, count, offset))
            return [InFlightMessage.from_held(one) for one in held]
        values = await self.session.runner.run(peek_operation(self.session.keys, state, count, offset=offset))
        if state == "set_aside":
            return values
        if state == "dead":
            return [DeadMessage.from_record(value) for value in values]
        if state == "completed":
            return [read for value in values if (read := CompletedMessage.from_record(value)) is not None]
        if state == "failed":
            return [tried for value in values if (tried := FailedAttempt.from_record(value)) is not None]
        return [Message(value) for value in values]

    async def stats(self) -> QueueStats:
        """Return the totals of the queue since it exists; Redis keeps them, so they survive every process."""
        return await self.session.runner.run(stats_operation(self.session.keys))

    # ------------------------------------------------------------------ administer

    async def redrive(
        self,
        *,
        reason: str | None = None,
        older_than_seconds: float | None = None,
        deduplication_key: str | None = None,
        ids: Iterable[str] | None = None,
        where: Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        after: str | None = None,
        page_size: int = 250,
        dry_run: bool = False,
    ) -> RedriveReport:
        """Move dead letters back to the tail of the queue, with their deliveries reset.

        Messages that are buried after the redrive began stay dead, so that a failing message is not redriven in a loop.
        Its own deduplication key never blocks a dead letter. While another message holds the key, the dead letter stays
        and is counted as blocked. Dead letters for which `max_pending_length` leaves no room stay, too.

        Args:
            reason: only those buried for this reason.
            older_than_seconds: only those buried at least this long ago, by the server's clock.
            deduplication_key: only those published under this key.
            ids: only these messages.
            where: only those for which it returns true; an error that it raises ends the redrive before its page moves.
            limit: maximum number of dead letters; None for all.
            after: `report.after` of an earlier redrive with the same filters, to continue where it stopped.
            page_size: number of dead letters read and moved per call, up to 1,000.
            dry_run: move nothing, and count in `redriven` what the call would try to move.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        request = RedriveRequest(
            reason=reason,
            older_than_seconds=older_than_seconds,
            deduplication_key=deduplication_key,
            ids=ids_of(ids),
            where=None if where is None else lambda record: where(DeadMessage.from_record(record)),
            limit=limit,
            after=after,
            page_size=page_size,
            dry_run=dry_run,
        )
        cap = self.session.config.max_pending_length or 0
        return await self.session.runner.run(
            redrive_operation(
                self.session.keys,
                new_id(),
                request,
                max_pending_length=cap,
                emits_events=self.session.runner.emits_events,
            )
        )

    async def purge(self, state: str, *, older_than_seconds: float | None = None) -> int:
        """Delete everything that is in a state now, in bounded steps, and free the deduplication keys it holds.

        Args:
            state: `pending`, `returned`, `delayed`, `dead`, `completed` or `failed`.
            older_than_seconds: of dead letters, only those buried at least this long ago, by the server's clock.

        Returns:
            The number of deleted messages or records. Messages that arrive meanwhile stay.
        """
        return await self.session.runner.run(
            purge_operation(
                self.session.keys,
                new_id(),
                state,
                older_than_seconds=older_than_seconds,
                emits_events=self.session.runner.emits_events,
            )
        )

    async def cancel(self, ids: Iterable[str]) -> list[str]:
        """Delete waiting messages (pending, returned or delayed) by id, and free their deduplication keys.

        Reads through the queue in bounded steps, so it costs as much as the queue is long.

        Returns:
            The ids that were cancelled; one that is in flight, dead or unknown is not among them.
        """
        wanted = ids_of(ids) or ()
        return await self.session.runner.run(
            cancel_operation(self.session.keys, new_id(), wanted, emits_events=self.session.runner.emits_events)
        )

    async def forget(self, key: str) -> bool:
        """Free a deduplication key, whichever message holds it; return whether one did."""
        return await self.session.runner.run(
            forget_operation(self.session.keys, key, emits_events=self.session.runner.emits_events)
        )

    async def pause(self) -> bool:
        """Stop all claims from taking new messages until `resume`; messages in flight are not affected.

        Returns:
            Whether the queue was not paused yet.
        """
        return await self.session.runner.run(
            pause_operation(self.session.keys, emits_events=self.session.runner.emits_events)
        )

    async def resume(self) -> bool:
        """Let claims take messages again, and wake waiting consumers; return whether the queue was paused."""
        return await self.session.runner.run(
            resume_operation(self.session.keys, emits_events=self.session.runner.emits_events)
        )

    async def repair(self) -> RepairReport:
        """Repair the queue's counts and indexes after another program deleted or overwrote its keys.

        It recounts the messages in flight, reaps damaged leases, drops dead letters whose record is lost, and returns
        set-aside messages that this version can read to the queue. It works in bounded calls beside publishers and
        consumers, may be repeated, and changes nothing in a consistent queue. With the permissions for `SCAN` and
        `HSCAN` it also finds leases without a deadline and dead records without a dead letter.
        """
        return await self.session.runner.run(
            repair_operation(
                self.session.keys, self.session.rules, new_id(), emits_events=self.session.runner.emits_events
            )
        )
