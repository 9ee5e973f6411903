"""The checks of a drain's arguments: every drain refuses the same values with the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from sluicegate import checks
from sluicegate.consumer import QueueConsumer
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.draining.progress import DrainProgress
from sluicegate.errors import ConfigurationError

__all__ = ["MAX_PARTITIONS", "OnFailures", "Progress", "Until", "check", "check_queue", "is_count"]

Until: TypeAlias = Literal["empty", "deadline"] | int
OnFailures: TypeAlias = Literal["raise", "return"]
Progress: TypeAlias = bool | Callable[[DrainProgress], object] | None

MAX_PARTITIONS = 10_000
_MAX_LEASE_SECONDS = 31_622_400


def check_queue(queue: object) -> None:
    """Refuse what no drain can work with.

    Raises:
        TypeError: not a queue of `sluicegate`.
        ConfigurationError: a queue that delivers at most once.
    """
    if not isinstance(queue, QueueConsumer):
        if type(queue).__module__.startswith("sluicegate.asyncio"):
            raise TypeError(
                "queue is one of sluicegate.asyncio, and a drain calls plain functions and blocks; make the queue with "
                "sluicegate.open_spec(queue.spec()), and in a coroutine call it by "
                "`await asyncio.to_thread(sluicegate.drain, queue, process)`"
            )
        raise TypeError(f"queue must be a RedisMessageQueue or the group of a stream, not a {type(queue).__name__}")
    if queue.session.config.at_most_once:
        raise ConfigurationError(
            f"queue {queue.name!r} delivers at most once (visibility_timeout_seconds=None): a claim acks its messages, "
            "so a drain could give none back and retry none; drain it through an object with a visibility timeout"
        )


def check(
    *,
    batch_size: int,
    lease_seconds: float,
    run_id: str | None,
    until: object,
    deadline_seconds: float | None,
    progress: object,
    on_failures: object,
) -> None:
    """Refuse arguments that cannot work.

    Raises:
        ConfigurationError: names the argument and what it may be.
    """
    if not is_count(batch_size, MAX_CLAIM_LIMIT):
        raise ConfigurationError(f"batch_size must be an int from 1 to {MAX_CLAIM_LIMIT}, not {batch_size!r}")
    if not _is_life(lease_seconds):
        raise ConfigurationError(f"lease_seconds must be a number above 0, a year at most, not {lease_seconds!r}")
    if run_id is not None and (not isinstance(run_id, str) or not run_id.strip()):
        raise ConfigurationError(f"run_id must be a str with a visible character, not {run_id!r}")
    if run_id is not None and any("\ud800" <= character <= "\udfff" for character in run_id):
        raise ConfigurationError(f"run_id must be text that UTF-8 can carry, not {run_id!r}")
    if not (isinstance(until, str) and until in ("empty", "deadline")) and not is_count(until, 2**53):
        raise ConfigurationError(f"until must be 'empty', 'deadline' or a number of messages from 1 on, not {until!r}")
    if deadline_seconds is not None:
        checks.positive("deadline_seconds", deadline_seconds)
    if until == "deadline" and deadline_seconds is None:
        raise ConfigurationError("until='deadline' needs deadline_seconds: how long to claim and wait for messages")
    checks.one_of("on_failures", on_failures, ("raise", "return"))
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise ConfigurationError(f"progress must be None, True, False or a function, not {progress!r}")


def is_count(value: object, most: int) -> bool:
    """Return whether a value is an int from 1 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_life(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MAX_LEASE_SECONDS
