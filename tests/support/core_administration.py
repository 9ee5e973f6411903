"""Administration without a queue object: runs operations on a test's server, and puts messages into every state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from sluicegate.core.call import Call, Operation
from sluicegate.core.transitions.cancel import cancel_operation
from sluicegate.core.transitions.claim import Opened
from sluicegate.core.transitions.forget import forget_operation
from sluicegate.core.transitions.pause import pause_operation, resume_operation
from sluicegate.core.transitions.purge import purge_operation
from sluicegate.core.transitions.redrive import RedriveReport, RedriveRequest, redrive_operation
from sluicegate.core.transitions.stats import QueueStats, stats_operation
from sluicegate.events import QueueEvent
from tests.support import markers, state
from tests.support.core_calls import Core, verdict

T = TypeVar("T")
_numbers = itertools.count()


class Admin(Core):
    """Runs operations to their end and records their events; calls `between` before each of their calls."""

    def __init__(self, client: redis.Redis, queue: str = "orders", *, most: int = 10) -> None:
        super().__init__(client, queue, most=most)
        self.events: list[tuple[str, str, int]] = []
        self.calls: list[Call[Any]] = []
        self.answers: list[Any] = []
        self.between: Callable[[Call[Any]], object] = lambda call: None
        self.redriven_to = "returned" if self.keys.group else "pending"

    def run(self, operation: Operation[T]) -> T:
        answer = None
        try:
            while True:
                step = operation.send(answer)
                answer = None
                if isinstance(step, QueueEvent):
                    assert step.queue == self.queue
                    self.events.append((step.operation.value, step.outcome.value, step.count))
                else:
                    assert isinstance(step, Call)
                    self.between(step)
                    self.calls.append(step)
                    answer = self.do(step)
                    self.answers.append(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    # ------------------------------------------------------------------ the operations

    def redrive(self, *, max_pending_length: int = 0, **request: Any) -> RedriveReport:
        asked = RedriveRequest(**request)
        return self.run(
            redrive_operation(self.keys, nonce(), asked, max_pending_length=max_pending_length, emits_events=True)
        )

    def purge(self, where: str) -> int:
        return self.run(purge_operation(self.keys, nonce(), where, emits_events=True))

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return self.run(cancel_operation(self.keys, nonce(), ids, emits_events=True))

    def forget(self, key: str) -> bool:
        return self.run(forget_operation(self.keys, key, emits_events=True))

    def pause(self) -> bool:
        return self.run(pause_operation(self.keys, emits_events=True))

    def resume(self) -> bool:
        return self.run(resume_operation(self.keys, emits_events=True))

    def stats(self) -> QueueStats:
        return self.run(stats_operation(self.keys))

    # ------------------------------------------------------------------ messages in every state

    def send(self, *names: str, keyed: bool = False, bound: bool = False) -> list[str]:
        """Publish messages with these payloads; return their ids.

        Those that are bound hold their key until they end.
        """
        more: dict[str, Any] = {"kind": b"2", "window": 7 * 86400} if bound else {}
        batch = f"b{next(_numbers)}"
        ids: list[str] = []
        for first in range(0, len(names), 1000):
            published = self.do(self.publish(f"{batch}.{first}", *names[first : first + 1000], keyed=keyed, **more))
            assert published.accepted == len(names[first : first + 1000])
            ids += published.ids or [f"{batch}.{first}-{at}" for at in range(published.accepted)]
        return ids

    def take(self, limit: int, **options: object) -> tuple[str, bytes, list[str]]:
        """Claim, the oldest first; return lease, token and names."""
        lease = f"l{next(_numbers)}"
        token, reply = self.opened(lease, "n", limit, **options)
        return lease, token, [entry.rsplit(b"\x1f", 1)[1].decode() for entry in reply.leased().entries()]

    def give_back(self, limit: int, verb: str, **options: object) -> list[str]:
        """Claim, and settle with one verdict; return the names."""
        lease, token, names = self.take(limit)
        self.do(self.settle(lease, token, verdict(verb, f"1-{len(names)}", **options)))  # type: ignore[arg-type]
        return names

    def die(self, *names: str, reason: str = "hopeless", keyed: bool = False) -> list[str]:
        """Make dead letters of these names, in this order. The queue must hold nothing else to claim."""
        ids = self.send(*names, keyed=keyed)
        self.bury_all(reason)
        return ids

    def bury_all(self, reason: str = "hopeless") -> int:
        """Bury everything that can be claimed; return how much that was."""
        buried = 0
        while isinstance(reply := self.do(self.claim(lease := f"l{next(_numbers)}", "n", 1000)), Opened):
            count = len(reply.leased().slots)
            group = verdict("bury", f"1-{count}", why=reason.encode() + b"\x1fE\x1ftext")
            self.do(self.settle(lease, b"n:" + reply.opening, group))
            buried += count
        return buried

    def age_letters(self, ids: Sequence[str], seconds: float) -> None:
        """Move the deaths of these dead letters back in time."""
        for one in ids:
            at = int(self.client.zscore(self.keys.dead, one)) - int(seconds * 1000)
            record = self.client.hget(self.keys.dead_records, one)
            self.client.hset(self.keys.dead_records, one, b"%d\x1f" % at + record.split(b"\x1f", 1)[1])
            self.client.zadd(self.keys.dead, {one: at})

    def names(self, where: str) -> list[str]:
        """Return the names in a state, the next one to be claimed first."""
        values = getattr(state.contents(self.client, self.queue), where)
        if where == "dead":
            members = self.client.zrange(self.keys.dead, 0, -1)
            values = [self.client.hget(self.keys.dead_records, member).split(b"\x1f", 4)[4] for member in members]
        return [value.rsplit(b"\x1f", 1)[-1].decode() for value in values]

    def marker(self, key: str) -> bytes | None:
        """Return the id of the message that holds a deduplication key."""
        owner = markers.owner(self.client, self.keys, key.encode())
        return None if owner is None else owner.split(b"\x1f")[0]

    def totals(self) -> dict[str, int]:
        return state.counters(self.client, self.queue)


def nonce() -> bytes:
    return b"op%d" % next(_numbers)
