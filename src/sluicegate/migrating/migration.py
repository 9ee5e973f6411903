"""Moves what another library has stored into a queue, a stream or a queue of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from sluicegate._redis.connection import is_cluster_client
from sluicegate.clock import elapsed_clock
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.transitions.groups import GroupFound
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.gateway import RedisGateway
from sluicegate.migrating import calls, markers, streams
from sluicegate.migrating.calls import Described
from sluicegate.migrating.lists import JobReader, ListMove, MessageReader, Reader, count_live, move_list
from sluicegate.migrating.plan import MovedPart, MovePlan, MoveProgress, MoveReport, PlannedPart
from sluicegate.migrating.sources import InFlight, JobQueueSource, MessageQueueSource, Source, StreamSource

__all__ = ["Into", "Migration", "Part"]

Into = Literal["queue", "stream", "jobs"]
Part = Literal["pending", "in flight", "dead", "failed", "completed", "deduplication keys"]
_PARTS = get_args(Part)
_BECOMES = {"pending": "pending", "in flight": "returned", "dead": "dead", "failed": "dead", "completed": "completed"}
_ADVICE = (
    "stop them first, or give in_flight='return' to take what they hold (they may finish it once more), or 'leave' to "
    "leave it where it is"
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A list of the source with what is in it, and in a page that an interrupted run has taken."""

    move: ListMove
    described: Described
    taken: int


class Migration:
    """Moves what another library has stored; interrupted at any point, it continues where it stopped.

    Every message is taken, enters its new place in one atomic step that knows what has entered before, and is removed
    from the source only after that. A repeat moves nothing twice, whenever it runs within a year.

    Args:
        source: what to move.
        name: of the queue, stream or queue of jobs that it moves into.
        source_gateway: the Redis of the source.
        target_gateway: the Redis that it moves to; None for the same.
        into: what it becomes; None: a queue for redis-message-queue, a queue of jobs for a job queue, and for a stream
            a stream, or with a group a queue.
        in_flight: what happens to messages that a consumer may be working on: `refuse` moves nothing while there are
            any, `return` takes them with their deliveries counted, and `leave` leaves them.
        live_seconds: how long after its claim, or its consumer's last call, a job or an entry of a stream counts as
            being worked on. A message of redis-message-queue counts until its lease expires.
        parts: move only these: `pending`, `in flight`, `dead`, `failed`, `completed`, `deduplication keys`; None for
            all. A stream has no parts.

    Raises:
        ConfigurationError: the source cannot move into that, or an option that cannot work.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        source_gateway: RedisGateway,
        target_gateway: RedisGateway | None = None,
        into: Into | None = None,
        in_flight: InFlight = "refuse",
        live_seconds: float = 300,
        parts: tuple[Part, ...] | None = None,
    ) -> None:
        self.source = source
        self.into = _checked_into(source, into)
        if in_flight not in get_args(InFlight):
            raise ConfigurationError(f"in_flight is {in_flight!r}; it is one of {', '.join(get_args(InFlight))}")
        if in_flight == "leave" and isinstance(source, StreamSource):
            raise ConfigurationError(
                "entries of a stream cannot be left with their consumers; use 'refuse' or 'return'"
            )
        for part in parts or ():
            if part not in _PARTS:
                raise ConfigurationError(f"there is no part {part!r}; there are {', '.join(_PARTS)}")
        if parts and isinstance(source, StreamSource):
            raise ConfigurationError("a stream has no parts; leave parts out")
        self._keys = StreamKeys(name) if self.into == "stream" else QueueKeys(name)
        self._from, self._to = source_gateway, target_gateway or source_gateway
        self._in_flight, self._live_seconds = in_flight, live_seconds
        self._parts = parts or _PARTS

    @property
    def target(self) -> str:
        """Return where it moves to, in words."""
        return f"{'queue of jobs' if self.into == 'jobs' else self.into} {self._keys.name!r}"

    # ------------------------------------------------------------------ plan

    def plan(self) -> MovePlan:
        """Look at the source and tell what a run would move; changes nothing."""
        if isinstance(self.source, StreamSource):
            parts, notes = self._plan_stream(self.source)
        else:
            parts, notes = self._plan_lists(self.source)
        return MovePlan(str(self.source), self.target, tuple(parts), (*notes, *self._about_target()))

    def _plan_lists(self, source: MessageQueueSource | JobQueueSource) -> tuple[list[PlannedPart], list[str]]:
        planned, notes = [], []
        for found in self._lists(source):
            if problem := _wrong_type(found.move.key, found.described, "list"):
                planned.append(self._part(found, found.described.size, "left", problem=problem))
                continue
            count, note, problem = found.described.size, "", ""
            if found.taken:
                count += found.taken
                note = f"{found.taken} of them taken by a run that was interrupted"
            if found.move.part == "in flight" and found.described.size:
                live = count_live(self._from, self._reader(source), found.move.key)
                if live and self._in_flight == "refuse":
                    problem = f"consumers of {source} may be working on {live} of {count} messages; {_ADVICE}"
                elif live and self._in_flight == "leave":
                    planned.append(self._part(found, live, "left", note="consumers may be working on them"))
                    count -= live
            if count:
                planned.append(self._part(found, count, _BECOMES[found.move.part], note=note, problem=problem))
        if isinstance(source, MessageQueueSource) and "deduplication keys" in self._parts:
            held = markers.count_markers(self._from, source)
            if held:
                where = f"{source.key('deduplication').decode()}{source.separator}*"
                planned.append(PlannedPart("deduplication keys", where, held, "held as long as there"))
        if not planned:
            notes.append(f"{source} holds nothing; is the name right?")
        return planned, notes

    @staticmethod
    def _part(found: _Found, count: int, becomes: str, *, note: str = "", problem: str = "") -> PlannedPart:
        return PlannedPart(found.move.part, _shown(found.move.key), count, becomes, note, problem)

    def _plan_stream(self, source: StreamSource) -> tuple[list[PlannedPart], list[str]]:
        key = source.name.encode()
        _, (described,) = self._from.execute(calls.describe_keys_call([key]))
        if described.kind == "none":
            return [], [f"there is no {source}; is the name right?"]
        if problem := _wrong_type(key, described, "stream"):
            return [PlannedPart("entries", source.name, described.size, "left", problem=problem)], []
        view = streams.view_stream(self._from, key, self._live_seconds)
        groups = view.found.groups
        chosen = [group for group in groups if source.group is None or group.name == source.group.encode()]
        if source.group is not None and not chosen:
            problem = f"stream {source.name!r} has no group {source.group!r}"
            return [PlannedPart("entries", source.name, view.found.length, "left", problem=problem)], []
        problem = ""
        if view.live and self._in_flight == "refuse":
            problem = (
                f"{view.live} consumers of stream {source.name!r} called within {self._live_seconds:g} s; "
                "stop them first, or give in_flight='return' to move what they hold"
            )
        count, note, notes = view.found.length, "", []
        if source.group is not None:
            lag = chosen[0].lag
            count = view.found.length if lag is None else min(view.found.length, lag + chosen[0].held)
            note = "at most; what the group has finished stays" if lag is None else "what the group has finished stays"
        becomes = "entries, with their ids" if self.into == "stream" else "pending"
        planned = [PlannedPart("entries", source.name, count, becomes, note, problem)] if count or problem else []
        if self.into == "stream":
            planned += [_planned_group(source.name, group) for group in chosen]
        if self.into == "queue" and source.group is None and groups:
            notes.append("all entries move, also those that a group has finished; name a group to move only its own")
        return planned, notes

    def _about_target(self) -> list[str]:
        keys = self._keys
        names = [keys.stream] if isinstance(keys, StreamKeys) else [keys.pending, keys.returned, keys.delayed]
        _, found = self._to.execute(calls.describe_keys_call(names))
        count = sum(one.size for one in found)
        if not count:
            return []
        what = "entries" if self.into == "stream" else "waiting messages"
        return [f"{self.target} holds {count} {what} already; what moves follows them"]

    # ------------------------------------------------------------------ run

    def run(self, *, progress: Callable[[MoveProgress], None] | None = None) -> MoveReport:
        """Move everything that the plan shows.

        Args:
            progress: called after each page.

        Raises:
            ConfigurationError: the plan has problems; nothing was moved.
            RedisMemoryError: the target is full; what has not moved is still at the source. Run it again.
        """
        start, plan = elapsed_clock(), self.plan()
        if plan.problems:
            raise ConfigurationError(f"nothing was moved: {'; '.join(plan.problems)}")
        done, total = 0, plan.total
        moved: list[MovedPart] = []

        def tell(part: str, count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(MoveProgress(part, done, max(total, done)))

        if isinstance(self.source, StreamSource):
            moved.append(MovedPart("entries"))
            self._run_stream(self.source, moved[-1], tell)
        else:
            self._run_lists(self.source, moved, tell)
        return MoveReport(plan.source, plan.target, tuple(moved), elapsed_clock() - start)

    def _run_stream(self, source: StreamSource, moved: MovedPart, tell: Callable[[str, int], None]) -> None:
        key = source.name.encode()
        view = streams.view_stream(self._from, key, self._live_seconds)
        if not view.found.exists:
            return
        if isinstance(self._keys, StreamKeys):
            streams.move_to_stream(self._from, self._to, self._keys, source, view, moved, tell)
        else:
            streams.move_to_queue(self._from, self._to, self._keys, source, view, moved, tell)

    def _run_lists(
        self,
        source: MessageQueueSource | JobQueueSource,
        moved: list[MovedPart],
        tell: Callable[[str, int], None],
    ) -> None:
        reader = self._reader(source)
        if isinstance(source, MessageQueueSource) and "deduplication keys" in self._parts:
            # First: what is published to the new place meanwhile must meet them.
            part = MovedPart("deduplication keys")
            markers.move_markers(self._from, self._to, self._keys, source, part)
            if part.moved + part.left + part.known:
                moved.append(part)
        for found in self._lists(source):
            part = next((one for one in moved if one.part == found.move.part), None) or MovedPart(found.move.part)
            move_list(self._from, self._to, self._keys, reader, found.move, part, tell)
            if part not in moved and part.moved + part.left + part.known:
                moved.append(part)

    def _reader(self, source: MessageQueueSource | JobQueueSource) -> Reader:
        if isinstance(source, MessageQueueSource):
            return MessageReader(source, self._from)
        alone = is_cluster_client(self._from.client) and "{" not in source.name
        return JobReader(source, self._from, self._live_seconds, alone=alone)

    def _lists(self, source: MessageQueueSource | JobQueueSource) -> list[_Found]:
        """List the lists of the source in the order in which they move: what was claimed is older than what waits."""
        moves = [move for move in self._moves(source) if move.part in self._parts]
        found = []
        for move in moves:
            page = calls.beside(move.key, b":sluicegate:page")
            _, (described, taken) = self._from.execute(calls.describe_keys_call([move.key, page]))
            if described.kind != "none" or taken.size > 1:
                found.append(_Found(move, described, max(0, taken.size - 1)))
        return found

    def _moves(self, source: MessageQueueSource | JobQueueSource) -> Iterator[ListMove]:
        leave = self._in_flight == "leave"
        notes = source.notes() if isinstance(source, MessageQueueSource) else ()
        yield ListMove("in flight", source.key("processing"), "waiting", notes, leave)
        yield ListMove("pending", source.key("pending"), "waiting")
        if isinstance(source, MessageQueueSource):
            for key in source.dead_letter_keys():
                yield ListMove("dead", key, "dead")
        yield ListMove("failed", source.key("failed"), "dead")
        yield ListMove("completed", source.key("completed"), "completed")


def _checked_into(source: Source, into: Into | None) -> Into:
    if not isinstance(source, (MessageQueueSource, JobQueueSource, StreamSource)):
        raise OptionTypeError(f"source must be a MessageQueueSource, JobQueueSource or StreamSource, not {source!r}")
    possible: dict[type, tuple[Into, ...]] = {MessageQueueSource: ("queue",), JobQueueSource: ("jobs",)}
    allowed = possible.get(type(source), ("stream", "queue"))
    if isinstance(source, StreamSource) and source.group is not None:
        allowed = ("queue",)
    if into is not None and into not in allowed:
        group = " by one of its groups" if isinstance(source, StreamSource) and source.group else ""
        raise ConfigurationError(f"{source}{group} moves into a {' or a '.join(allowed)}, not into a {into}")
    return into or allowed[0]


def _wrong_type(key: bytes, described: Described, expected: str) -> str:
    if described.kind in (expected, "none"):
        return ""
    return f"{_shown(key)!r} holds a {described.kind}, where a {expected} was expected; give the name of another"


def _planned_group(stream: str, group: GroupFound) -> PlannedPart:
    note = f"continues behind {group.position}, with {group.held} entries that consumers hold"
    return PlannedPart(f"group {_shown(group.name)}", stream, group.held, "group", note)


def _shown(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
