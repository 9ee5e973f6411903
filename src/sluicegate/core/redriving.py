"""Redrive: dead letters become pending again, by filter, in pages that can be taken up again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sluicegate import checks
from sluicegate.core import admin_calls
from sluicegate.core.admin_calls import Cursor, Named, Page, Redriven, Step, Steps, head_of, marker_of
from sluicegate.core.call import Operation
from sluicegate.core.entry import encode_deduplication_key
from sluicegate.core.keys import QueueKeys
from sluicegate.core.policies import stored_reason
from sluicegate.core.reports import RedriveReport
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["RedriveRequest", "redrive"]

_US = b"\x1f"
_MAX_PER_PAGE = 1000
_PATIENCE = 100


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Which dead letters go, and how many.

    Attributes:
        reason: only those buried for this reason.
        older_than_seconds: only those buried at least so long ago, by the server's clock.
        deduplication_key: only those published under this key.
        ids: only these; then no others are read.
        where: only those whose record it finds true. Called once per letter that passes the other filters; what it
            raises ends the redrive, and the letters of its page stay.
        limit: most letters redriven, None for all.
        after: where an earlier redrive stopped; the filters must be the same.
        page_size: letters read and moved per step.
    """

    reason: str | None = None
    older_than_seconds: float | None = None
    deduplication_key: str | None = None
    ids: tuple[str, ...] | None = None
    where: Callable[[bytes], bool] | None = None
    limit: int | None = None
    after: str | None = None
    page_size: int = 500

    def __post_init__(self) -> None:
        checks.cap("limit", self.limit)
        checks.count("page_size", self.page_size, _MAX_PER_PAGE)
        if self.older_than_seconds is not None:
            checks.not_negative("older_than_seconds", self.older_than_seconds)
        if isinstance(self.ids, str):
            raise TypeError("ids must be several message ids, such as a list; put the one id into a list")


@dataclass(slots=True)
class _Place:
    """How far a redrive has come: the mark, and behind which letter, or at which of the wanted ids, it goes on."""

    mark: int | None = None
    cursor: Cursor = field(default_factory=Cursor)
    at: int = 0

    @classmethod
    def of(cls, after: str | None, by_id: bool) -> _Place:
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


def redrive(
    keys: QueueKeys, nonce: bytes, request: RedriveRequest, *, max_pending_length: int = 0, emits_events: bool = False
) -> Operation[RedriveReport]:
    """Make dead letters pending again, at the tail, those of a page in their first order, with their deliveries reset.

    Letters that are buried after the first page was read stay, so that what dies again is not redriven in a loop. A
    letter is never blocked by its own deduplication key, and stays dead while another message holds it.

    Args:
        keys: of the queue.
        nonce: of this operation.
        request: which letters, and how many.
        max_pending_length: messages that the queue may hold waiting, 0 for no bound; what does not fit stays dead.
        tell: whether to tell events.

    Raises:
        ConfigurationError: `request.after` is not of such a redrive.
    """
    wanted = None if request.ids is None else [one.encode(errors="replace") for one in dict.fromkeys(request.ids)]
    place, steps, report = _Place.of(request.after, wanted is not None), Steps(nonce), RedriveReport()
    wants = _filter(request)
    while True:
        asked = () if wanted is None else tuple(wanted[place.at : place.at + request.page_size])
        if wanted is not None and not asked:
            return report
        page: Page = yield admin_calls.scan(
            keys,
            "dead",
            most=request.page_size,
            cursor=place.cursor,
            mark=place.mark,
            older_seconds=request.older_than_seconds or 0,
            whole=request.where is not None,
            wanted=asked,
        )
        place.mark = page.mark
        left = None if request.limit is None else request.limit - report.redriven
        chosen, cut = _choose(page, wants, left)
        done = Redriven(0, [], None)
        if chosen:
            named = [Named(*_named(keys, page, at)) for at in chosen]
            done = yield from _step(keys, steps.next(), named, page.mark, max_pending_length)
            if done.full_at is not None:
                cut = chosen[done.full_at]
        seen = len(page.items) if cut is None else cut
        blocked = {chosen[at] for at in done.blocked}
        report = replace(
            report,
            redriven=report.redriven + done.redriven,
            blocked=report.blocked + len(blocked),
            scanned=report.scanned + seen,
        )
        if emits_events:
            yield from _events(keys, done)
        _go_on(place, page, range(seen), set(chosen) - blocked, wanted)
        ended = place.at >= len(wanted) if wanted is not None else page.ended
        if cut is None and ended:
            return report
        if cut is not None and (done.full_at is not None or report.redriven == request.limit):
            return replace(report, after=place.token(wanted is not None))


def _step(keys: QueueKeys, step: Step, named: list[Named], mark: int, max_pending_length: int) -> Operation[Redriven]:
    """One step, once the mark's millisecond is over: what dies again then dies later than the mark, and stays."""
    for patient in [True] * _PATIENCE + [False]:  # the last for a clock that was set back
        done: Redriven | None = yield admin_calls.redrive(
            keys, step, named, mark=mark, max_pending_length=max_pending_length, patient=patient
        )
        if done is not None:
            return done
    raise AssertionError("an impatient step is never too early")


def _filter(request: RedriveRequest) -> Callable[[bytes], bool]:
    """The filters that a record must pass, the caller's last."""
    tests: list[Callable[[list[bytes], bytes], Any]] = []
    if request.reason is not None:
        reason = stored_reason(request.reason)
        tests.append(lambda parts, _: parts[1] == reason)
    if request.deduplication_key is not None:
        key = encode_deduplication_key(request.deduplication_key)
        tests.append(lambda parts, _: parts[4].count(_US) > 1 and head_of(parts[4])[1] == key)
    where = request.where
    if where is not None:
        tests.append(lambda _, record: _decided(where(record)))

    def wants(record: bytes) -> bool:
        parts = record.split(_US, 4)
        return len(parts) < 5 or all(test(parts, record) for test in tests)

    return wants


def _decided(answer: object) -> bool:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("where must be a plain function: nothing awaits the answer of an async one")
    return bool(answer)


def _choose(page: Page, wants: Callable[[bytes], bool], left: int | None) -> tuple[list[int], int | None]:
    """Positions of the letters that shall go, and of the first that was not looked at because these are enough."""
    chosen: list[int] = []
    for at, (_, record) in enumerate(page.items):
        if left is not None and len(chosen) >= left:
            return chosen, at
        if wants(record):
            chosen.append(at)
    return chosen, None


def _named(keys: QueueKeys, page: Page, at: int) -> tuple[bytes, bytes]:
    member, record = page.items[at]
    return member, marker_of(keys, record.split(_US, 4)[-1])


def _go_on(place: _Place, page: Page, seen: range, went: set[int], wanted: list[bytes] | None) -> None:
    """Move on: behind the last letter seen that stays, or to the first wanted id that was not looked at."""
    if wanted is not None:
        if len(seen) < len(page.items):
            place.at = wanted.index(page.items[len(seen)][0], place.at)
        else:
            place.at += page.read
        return
    for at in reversed(seen):
        if at not in went:
            member, record = page.items[at]
            at_ms = record.split(_US, 1)[0]
            place.cursor = Cursor(score=at_ms if at_ms.isdigit() else place.cursor.score or b"0", member=member)
            return


def _events(keys: QueueKeys, done: Redriven) -> Operation[None]:
    if done.redriven:
        yield QueueEvent(EventOperation.REDRIVE, EventOutcome.SUCCESS, keys.name, done.redriven)
    if done.blocked:
        yield QueueEvent(EventOperation.REDRIVE, EventOutcome.REFUSED, keys.name, len(done.blocked))
