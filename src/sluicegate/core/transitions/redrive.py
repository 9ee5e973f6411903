"""A redrive makes dead letters pending again, by filter, in pages that a later call can continue."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluicegate import checks
from sluicegate.core import scripts
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.entry import encode_deduplication_key, identify, key_of
from sluicegate.core.keys import QueueKeys
from sluicegate.core.policies import stored_reason
from sluicegate.core.transitions.scan import RECEIPT_MS, Cursor, Page, Step, Steps, Target, scan_call, target_args
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["RedriveReport", "RedriveRequest", "Redriven", "redrive_call", "redrive_operation"]

_MARKER_MS = 7 * 24 * 3_600_000
_MAX_PAGE_SIZE = 1000
_PATIENCE = 100


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """A redrive request says which dead letters to redrive, and how many.

    Attributes:
        reason: only those buried for this reason.
        older_than_seconds: only those buried at least so long ago, by the server's clock.
        deduplication_key: only those published under this key.
        ids: only these; no others are read then.
        where: only those whose record it finds true. It is called once per dead letter that passes the other filters.
            What it raises ends the redrive, and the dead letters of its page stay.
        limit: the largest number of dead letters redriven, None for all.
        after: where an earlier redrive stopped; the filters must be the same.
        page_size: dead letters read and moved per step.
        dry_run: move nothing, and count as redriven what the filters choose.
    """

    reason: str | None = None
    older_than_seconds: float | None = None
    deduplication_key: str | None = None
    ids: tuple[str, ...] | None = None
    where: Callable[[bytes], bool] | None = None
    limit: int | None = None
    after: str | None = None
    page_size: int = 500
    dry_run: bool = False

    def __post_init__(self) -> None:
        checks.flag("dry_run", self.dry_run)
        checks.cap("limit", self.limit)
        checks.count("page_size", self.page_size, _MAX_PAGE_SIZE)
        if self.older_than_seconds is not None:
            checks.not_negative("older_than_seconds", self.older_than_seconds)
        if isinstance(self.ids, str):
            raise TypeError("ids must be several message ids, such as a list; put the one id into a list")


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """A redrive report counts what a redrive did.

    Attributes:
        redriven: dead letters that are pending again.
        blocked: dead letters that stay dead, because another message holds their deduplication key or they are foreign
            values.
        scanned: dead letters that were looked at.
        after: where it stopped before the end, for the `after` of a next call; None when it came to the end.
    """

    redriven: int = 0
    blocked: int = 0
    scanned: int = 0
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of one step.

    Attributes:
        redriven: dead letters that are pending again.
        blocked: positions of those that stay dead because another message holds their deduplication key.
        full_at: the position of the first for which the queue has no room; None when all had room.
    """

    redriven: int
    blocked: list[int]
    full_at: int | None


@dataclass(slots=True)
class _Place:
    """A place says how far a redrive has come.

    Attributes:
        mark: the time up to which dead letters are considered.
        cursor: the dead letter behind which it continues.
        at: the position of the wanted id at which it continues, when it looks for ids.
    """

    mark: int | None = None
    cursor: Cursor = field(default_factory=Cursor)
    at: int = 0

    @classmethod
    def from_token(cls, after: str | None, by_id: bool) -> _Place:
        if after is None:
            return cls()
        try:
            mark, score, member = after.split(":", 2)
            if by_id != (score == "@"):
                raise ValueError("of another kind")
            if by_id:
                return cls(int(mark), at=int(member))
            return cls(int(mark), Cursor(score=b"%d" % int(score or 0), member=member.encode(errors="surrogateescape")))
        except ValueError:
            raise ConfigurationError(
                f"after={after!r} is not what a redrive with these arguments reported; give its report.after and the "
                "same filters"
            ) from None

    def token(self, by_id: bool) -> str:
        if by_id:
            return f"{self.mark}:@:{self.at}"
        return f"{self.mark}:{self.cursor.score.decode()}:{self.cursor.member.decode(errors='surrogateescape')}"


def redrive_call(
    keys: QueueKeys,
    step: Step,
    targets: Sequence[Target],
    *,
    mark: int,
    max_pending_length: int = 0,
    patient: bool = True,
) -> Call[Redriven | None]:
    """Prepare one step: make dead letters pending again. A patient one answers None during the mark's millisecond."""
    markers, args = target_args(keys, targets)
    return Call(
        scripts.load("redrive"),
        (
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.wakeup,
            keys.published(step.nonce),
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            keys.marker_counters,
            *markers.buckets,
        ),
        (
            step.number,
            RECEIPT_MS,
            mark,
            max_pending_length,
            _MARKER_MS,
            int(patient),
            keys.group.encode(),
            markers.chain,
            markers.plan,
            markers.fields,
            *args,
        ),
        or_chain(keys.markers, _decode),
        again=lambda: redrive_call(
            keys, step, targets, mark=mark, max_pending_length=max_pending_length, patient=patient
        ),
    )


def redrive_operation(
    keys: QueueKeys, nonce: bytes, request: RedriveRequest, *, max_pending_length: int = 0, emits_events: bool = False
) -> Operation[RedriveReport]:
    """Make dead letters pending again, at the tail, with their deliveries reset. A page keeps its original order.

    Messages that are buried after the first page was read stay dead, so that one that fails again is not redriven in a
    loop. A dead letter is never blocked by its own deduplication key, and stays dead while another message holds it.

    Args:
        keys: the keys of the queue.
        nonce: identifies this operation.
        request: which dead letters, and how many.
        max_pending_length: how many messages may wait in the queue, 0 for no bound; what does not fit stays dead.
        emits_events: whether to emit events for each step.

    Raises:
        ConfigurationError: `request.after` was not reported by such a redrive.
    """
    wanted = None if request.ids is None else [one.encode(errors="replace") for one in dict.fromkeys(request.ids)]
    place, steps, report = _Place.from_token(request.after, wanted is not None), Steps(nonce), RedriveReport()
    matches = _filter(request)
    while True:
        asked = () if wanted is None else tuple(wanted[place.at : place.at + request.page_size])
        if wanted is not None and not asked:
            return report
        page: Page = yield scan_call(
            keys,
            "dead",
            page_size=request.page_size,
            cursor=place.cursor,
            mark=place.mark,
            older_seconds=request.older_than_seconds or 0,
            whole=request.where is not None,
            wanted=asked,
        )
        place.mark = page.mark
        left = None if request.limit is None else request.limit - report.redriven
        chosen, stop = _choose(page, matches, left)
        done = Redriven(len(chosen) if request.dry_run else 0, [], None)
        if chosen and not request.dry_run:
            targets = [_target(page, at) for at in chosen]
            done = yield from _redrive_step(keys, steps.next(), targets, page.mark, max_pending_length)
            if done.full_at is not None:
                stop = chosen[done.full_at]
        seen = len(page.items) if stop is None else stop
        blocked = {chosen[at] for at in done.blocked}
        report = replace(
            report,
            redriven=report.redriven + done.redriven,
            blocked=report.blocked + len(blocked),
            scanned=report.scanned + seen,
        )
        if emits_events and not request.dry_run:
            yield from _events(keys, done)
        went = set() if request.dry_run else set(chosen) - blocked
        _advance(place, page, range(seen), went, wanted)
        ended = place.at >= len(wanted) if wanted is not None else page.ended
        if stop is None and ended:
            return report
        if stop is not None and (done.full_at is not None or report.redriven == request.limit):
            return replace(report, after=place.token(wanted is not None))


def _redrive_step(
    keys: QueueKeys, step: Step, targets: list[Target], mark: int, max_pending_length: int
) -> Operation[Redriven]:
    """Do one step after the mark's millisecond is over, so that a message buried again is younger than the mark."""
    for patient in [True] * _PATIENCE + [False]:  # the last for a clock that was set back
        done = yield from with_markers(
            redrive_call(keys, step, targets, mark=mark, max_pending_length=max_pending_length, patient=patient)
        )
        if done is not None:
            return done
    raise AssertionError("an impatient step is never too early")


def _filter(request: RedriveRequest) -> Callable[[bytes], bool]:
    """Make a function of the filters that a record must pass; the caller's own filter is last."""
    tests: list[Callable[[list[bytes], bytes], Any]] = []
    if request.reason is not None:
        reason = stored_reason(request.reason)
        tests.append(lambda parts, _: parts[1] == reason)
    if request.deduplication_key is not None:
        key = encode_deduplication_key(request.deduplication_key)
        tests.append(lambda parts, _: parts[4].count(SEPARATOR) > 1 and identify(parts[4])[1] == key)
    where = request.where
    if where is not None:
        tests.append(lambda _, record: _decided(where(record)))

    def matches(record: bytes) -> bool:
        parts = record.split(SEPARATOR, 4)
        return len(parts) < 5 or all(test(parts, record) for test in tests)

    return matches


def _decided(answer: object) -> bool:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("where must be a plain function: nothing awaits the answer of an async one")
    return bool(answer)


def _choose(page: Page, matches: Callable[[bytes], bool], left: int | None) -> tuple[list[int], int | None]:
    """Positions of the dead letters to redrive, and of the first that was not looked at because these are enough."""
    chosen: list[int] = []
    for at, (_, record) in enumerate(page.items):
        if left is not None and len(chosen) >= left:
            return chosen, at
        if matches(record):
            chosen.append(at)
    return chosen, None


def _target(page: Page, at: int) -> Target:
    member, record = page.items[at]
    return Target(member, key_of(record.split(SEPARATOR, 4)[-1]))


def _advance(place: _Place, page: Page, seen: range, went: set[int], wanted: list[bytes] | None) -> None:
    """Move behind the last dead letter seen that stays, or to the first wanted id that was not looked at."""
    if wanted is not None:
        if len(seen) < len(page.items):
            place.at = wanted.index(page.items[len(seen)][0], place.at)
        else:
            place.at += page.read
        return
    for at in reversed(seen):
        if at not in went:
            member, record = page.items[at]
            at_ms = record.split(SEPARATOR, 1)[0]
            place.cursor = Cursor(score=at_ms if at_ms.isdigit() else place.cursor.score or b"0", member=member)
            return


def _decode(reply: list[int]) -> Redriven | None:
    if reply[0] < 0:
        return None
    return Redriven(reply[0], [number - 1 for number in reply[2:]], reply[1] - 1 if reply[1] else None)


def _events(keys: QueueKeys, done: Redriven) -> Iterator[QueueEvent]:
    if done.redriven:
        yield QueueEvent(EventOperation.REDRIVE, EventOutcome.SUCCESS, keys.name, done.redriven)
    if done.blocked:
        yield QueueEvent(EventOperation.REDRIVE, EventOutcome.REFUSED, keys.name, len(done.blocked))
