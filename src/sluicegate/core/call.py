"""A prepared call is one round trip without its I/O; an operation is several calls that belong together."""

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
    """A call is one script with its keys, its arguments and the function that decodes its reply.

    Every call may be executed twice or late without a second effect, so a gateway may repeat it freely.

    Attributes:
        script: the transition.
        keys: its KEYS.
        args: its ARGV.
        decode: turns the raw reply into a value.
        elapsed_arg: the position of the argument, in ms, that grows between attempts; None for no such argument.
        then: a command sent directly after the script on the same connection, at every attempt, such as WAIT. The
            result of the call is then a pair of the decoded reply and this command's raw reply, which may be an error.
        patience_seconds: how long the call may be retried, if less than the gateway's budget; None for the budget.
        doubtful: whether the call was sent before with an unknown outcome. A refusal of this attempt then says nothing
            about the earlier one.
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
        """Return the call as it must be sent `seconds` later, with the age among its arguments increased."""
        milliseconds = int(seconds * 1000)
        if self.elapsed_arg is None or milliseconds <= 0:
            return self
        args = list(self.args)
        args[self.elapsed_arg] = int(args[self.elapsed_arg]) + milliseconds
        return replace(self, args=args)


@dataclass(frozen=True, slots=True)
class Wait:
    """An operation yields a wait to sleep until a wake-up arrives, or for at most `seconds`.

    Attributes:
        wakeup: the key of the list whose token wakes the sleeper.
        seconds: the longest sleep.
    """

    wakeup: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """An operation yields a pause to sleep. The answer is True, and immediate, if the queue is stopping.

    Attributes:
        seconds: how long to sleep.
    """

    seconds: float


Operation = Generator[Call[Any] | Wait | Pause | QueueEvent, Any, T]
"""An operation yields calls, waits, pauses and events, receives their answers and returns its result.

The answer to a call is its decoded reply, the answer to a wait is whether a wake-up arrived, the answer to a pause is
whether the queue is stopping, and the answer to an event is None. An interruption of any of them is thrown into the
operation, which lets it propagate.

The sync and the asyncio shell run the same operations.
"""


def alone(call: Call[T]) -> Operation[T]:
    """Make an operation of one call."""
    reply: T = yield call
    return reply
