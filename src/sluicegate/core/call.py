"""A prepared call: everything about one round trip but the I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sluicegate.core.scripts import Script

__all__ = ["Call", "Operation", "Wait"]

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
    """

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[bytes | int]
    decode: Callable[[Any], T_co]
    elapsed_arg: int | None = None

    def later(self, seconds: float) -> Call[T_co]:
        """The same call, sent so much later: the argument that tells an age has grown."""
        if self.elapsed_arg is None or seconds <= 0:
            return self
        args = list(self.args)
        args[self.elapsed_arg] = int(args[self.elapsed_arg]) + int(seconds * 1000)
        return replace(self, args=args)


@dataclass(frozen=True, slots=True)
class Wait:
    """A request to sleep until the bell rings, at most so long.

    Attributes:
        bell: the list whose token wakes the sleeper.
        seconds: the longest sleep.
    """

    bell: bytes
    seconds: float


Operation = Generator[Call[Any] | Wait, Any, T]
"""Several calls that belong together: yields calls and waits, is sent their decoded replies, returns its result.

Written once, driven by the sync and the asyncio shell alike.
"""
