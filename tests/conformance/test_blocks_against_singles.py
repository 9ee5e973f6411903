"""Blocks against entries: after the same calls, two queues answer alike, and hold the same messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sluicegate.core.transitions.peek import PeekPlace
from sluicegate.core.transitions.publish import REFUSED
from tests.support.settings import THOROUGH
from tests.support.twins import Twin, twins

T = TypeVar("T")
NAMES = [f"k{number}" for number in range(24)]
RUNS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=12)
CAP = 30


class Machine(RuleBasedStateMachine):
    """Every rule makes the same calls on both queues."""

    steps = 0

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.batches = 0
        self.ids: list[str] = []

    @initialize(most=st.sampled_from([2, 5, 9]))
    def begin(self, most: int) -> None:
        self.pair = twins(self.client, most=most)

    def both(self, act: Callable[[Twin], T]) -> T:
        one, other = (act(twin) for twin in self.pair)
        assert one == other
        return one

    def _publish(self, names: list[str], **options: Any) -> None:
        batch = f"b{self.batches}"
        self.batches += 1
        published = self.both(lambda twin: twin.add(batch, *names, **options))
        if published.accepted != REFUSED:
            self.ids += [f"{batch}-{position}" for position in range(len(names))]

    @rule(names=RUNS)
    def publish(self, names: list[str]) -> None:
        self._publish(names, max_pending_length=CAP)

    @rule(names=RUNS, bound=st.booleans(), overload=st.sampled_from(["raise", "partial"]))
    def publish_with_keys(self, names: list[str], bound: bool, overload: str) -> None:
        more = {"kind": b"2", "window": 7 * 86400} if bound else {}
        self._publish(names, keyed=True, receipt=600, max_pending_length=CAP, overload=overload, **more)

    @rule(names=RUNS)
    def publish_and_drop_the_oldest(self, names: list[str]) -> None:
        self._publish(names, max_pending_length=CAP - 10, overload="drop_oldest")

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from([*self.ids[-60:], "unknown-1", "b0-999"]), unique=True, max_size=12))
        self.both(lambda twin: twin.cancel(ids))

    @rule(seldom=st.integers(0, 3))
    def purge(self, seldom: int) -> None:
        if not seldom:
            self.both(lambda twin: twin.purge("pending"))

    @rule(count=st.integers(1, 40), offset=st.integers(0, 40))
    def peek(self, count: int, offset: int) -> None:
        self.both(lambda twin: twin.look(count, offset))

    @rule(size=st.integers(1, 7), first=st.integers(0, 9))
    def peek_page_by_page(self, size: int, first: int) -> None:
        def pages(twin: Twin) -> list[list[bytes]]:
            place, found = PeekPlace(), [[b""]]
            while found[-1]:
                found.append(twin.look(size, first + size * (len(found) - 1), place))
            return found

        self.both(pages)

    @rule(limit=st.integers(1, 9), verb=st.sampled_from(["bury", "nack", "release"]))
    def claim_and_settle(self, limit: int, verb: str) -> None:
        if self.pair[0].count().ready:
            self.both(lambda twin: twin.give_back(limit, verb))

    @rule(limit=st.sampled_from([None, 1, 4]))
    def redrive(self, limit: int | None) -> None:
        def report(twin: Twin) -> tuple[int, int, int, bool]:
            done = twin.redrive(limit=limit, max_pending_length=CAP)
            return done.redriven, done.blocked, done.scanned, done.after is None

        self.both(report)

    @invariant()
    def they_are_alike(self) -> None:
        if not hasattr(self, "pair"):
            return
        Machine.steps += 1
        self.both(lambda twin: twin.stored())
        self.both(lambda twin: twin.totals())
        self.both(lambda twin: twin.owners(NAMES))
        self.both(lambda twin: (twin.count().ready, twin.count().pending, twin.count().returned))
        self.pair[1].check()
        self.pair[0].events.clear()


@pytest.mark.timeout(180 * (1 + THOROUGH))
def test_blocks_answer_as_entries_do(bare_client: redis.Redis) -> None:
    Machine.steps = 0
    run_state_machine_as_test(
        lambda: Machine(bare_client),
        settings=settings(max_examples=12 * (1 + 3 * THOROUGH), stateful_step_count=30, report_multiple_bugs=False),
    )
    assert Machine.steps >= 200
