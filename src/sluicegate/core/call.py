"""A prepared call: everything about one round trip but the I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from sluicegate.core.scripts import Script
from sluicegate.events import QueueEvent

__all__ = ["Call", "Operation", "Pause", "Wait", "alone"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One script with its keys, its arguments and the function that reads its reply.

    Every call may be executed twice or late without a second effect, so a gateway may repeat it freely.

    Attributes:
        script: the transition.
        keys: its KEYS.
        args: its ARGV.
        decode: from the raw reply to a value.
        elapsed_arg: the argument, in ms, that grows between attempts; None when none does.
        then: a command sent right behind the script on the same connection, at every attempt, such as WAIT; the result
            of the call is then a pair of the decoded reply and this command's raw reply, which may be an error.
        patience_seconds: how long it may be retried, when that is less than the gateway's budget; None for the budget.
        doubtful: whether it was sent before and nobody knows what came of it, so that a refusal leaves that open.
    """

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[bytes | int] = field(repr=False)  # payloads among them
    decode: Callable[[Any], T_co]
    elapsed_arg: int | None = None
    then: tuple[bytes | int, ...] = ()
    patience_seconds: float | None = None
    doubtful: bool = False

    def later(self, seconds: float) -> Call[T_co]:
        """The same call, sent so much later: the argument that tells an age has grown."""
        milliseconds = int(seconds * 1000)
        if self.elapsed_arg is None or milliseconds <= 0:
            return self
        args = list(self.args)
        args[self.elapsed_arg] = int(args[self.elapsed_arg]) + milliseconds
        return replace(self, args=args)


@dataclass(frozen=True, slots=True)
class Wait:
    """A request to sleep until the bell rings, at most so long.

    Attributes:
        wakeup: the list whose token wakes the sleeper.
        seconds: the longest sleep.
    """

    wakeup: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A request to sleep; its answer is True when the queue is stopping, and then it comes at once.

    Attributes:
        seconds: the sleep.
    """

    seconds: float


Operation = Generator[Call[Any] | Wait | Pause | QueueEvent, Any, T]
"""Several calls that belong together: yields calls, waits, pauses and events, is sent answers, returns its result.

A call is answered by its decoded reply, a wait by whether the bell rang, a pause by whether the queue is stopping, an
event by None. What interrupts any of them is thrown in, and let through.

Written once, driven by the sync and the asyncio shell alike.
"""


def alone(call: Call[T]) -> Operation[T]:
    """The operation that is one call."""
    reply: T = yield call
    return reply
