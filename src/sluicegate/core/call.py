"""A prepared call is one round trip without its I/O; an operation is several calls that belong together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from sluicegate.core.marker_chain import MarkerChain
from sluicegate.core.scripts import Script
from sluicegate.errors import RedisMessageQueueError
from sluicegate.events import QueueEvent

__all__ = ["Call", "ChainChanged", "Operation", "Pause", "Wait", "alone", "or_chain", "with_markers"]

_MAX_CHAINS = 50

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
        again: for a call that names markers, prepares the same call by what is known of their chain by then.
    """

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[bytes | int] = field(repr=False)  # payloads among them
    decode: Callable[[Any], T_co]
    elapsed_arg: int | None = None
    then: tuple[bytes | int, ...] = ()
    patience_seconds: float | None = None
    doubtful: bool = False
    again: Callable[[], Call[T_co]] | None = field(default=None, repr=False, compare=False)

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


@dataclass(frozen=True, slots=True)
class ChainChanged:
    """The answer to a call that named the buckets of markers by an older chain: it changed nothing.

    Attributes:
        text: the chain as it is stored.
        chain: what learns it.
    """

    text: bytes
    chain: MarkerChain

    def learn(self) -> None:
        """Let the next call name the right buckets."""
        self.chain.learn(self.text)


def or_chain(chain: MarkerChain, decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """Make a decoder of a script's reply that also knows the answer about another chain.

    It learns the chain at once from a script that has done its work and has changed the chain. A prepared call has the
    type of its usual reply: those who run operations never see the other one.
    """

    def decoded(reply: Any) -> T:
        if type(reply) is list and reply and reply[0] == b"chain":
            if len(reply) == 2:
                return ChainChanged(reply[1], chain)  # type: ignore[return-value]
            chain.learn(reply[1])
            reply = reply[2]
        return decode(reply)

    return decoded


Operation = Generator[Call[Any] | Wait | Pause | QueueEvent, Any, T]
"""An operation yields calls, waits, pauses and events, receives their answers and returns its result.

The answer to a call is its decoded reply, the answer to a wait is whether a wake-up arrived, the answer to a pause is
whether the queue is stopping, and the answer to an event is None. An interruption of any of them is thrown into the
operation, which lets it propagate.

The sync and the asyncio shell run the same operations.
"""


def with_markers(call: Call[T], clock: Callable[[], float] | None = None, begun: float | None = None) -> Operation[T]:
    """Make a call that names markers, again where their chain has changed meanwhile.

    Args:
        call: the call; the result is what a gateway answers to it.
        clock: in seconds, for a call with an argument that grows.
        begun: the time at which that argument was as `again` prepares it; None for now.

    Raises:
        RedisMessageQueueError: the chain changed at every call.
    """
    base = call
    if clock is not None and begun is None:
        begun = clock()
    for _ in range(_MAX_CHAINS):
        reply: Any = yield call
        changed = reply[0] if call.then else reply
        if not isinstance(changed, ChainChanged):
            return reply  # type: ignore[no-any-return]
        changed.learn()
        assert base.again is not None
        call = replace(base.again(), patience_seconds=base.patience_seconds, doubtful=base.doubtful)
        if clock is not None and begun is not None:
            call = call.later(clock() - begun)
    raise RedisMessageQueueError(
        f"{_MAX_CHAINS} calls in a row found another chain of deduplication markers in `counters.markers`; see whether "
        "another program writes there"
    )


def alone(call: Call[T]) -> Operation[T]:
    """Make an operation of one call."""
    reply: T = yield call
    return reply
