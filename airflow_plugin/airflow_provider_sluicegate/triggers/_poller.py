"""One poller per event loop and connection reads what all triggers watch there: depths, batches and jobs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.loading import import_async
from airflow_provider_sluicegate.stats import emit_depth

if TYPE_CHECKING:
    from sluicegate.asyncio import RedisGateway
    from sluicegate.core.call import Call
    from sluicegate.place import Place

__all__ = ["DepthPoller", "Question", "Reading", "watch"]


class Question(Protocol):
    """
    Declares something other than a depth that a trigger watches, such as the counts of a batch.

    Equal questions share one reading, so it is hashable.
    """

    def calls(self) -> list[Call[Any]]:
        """Return the calls that read it; they change nothing."""
        ...

    def answer(self, replies: Sequence[Any]) -> Any:
        """Return what the replies to the calls say."""
        ...


Watched: TypeAlias = "Place | Question"
Reading: TypeAlias = Mapping[Any, Any]
"""Per queue or group its depth, per other question its answer, or the error why it could not be read."""

_GATHER_SECONDS = 0.05  # triggers that start together are read together, and nothing is read more often
_MAX_PAUSE_SECONDS = 30.0  # between attempts while Redis is away
_WARNING_SECONDS = 60.0
_log = logging.getLogger(__name__)
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, DepthPoller]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, slots=True)
class _Watch:
    watched: tuple[Watched, ...]
    interval_seconds: float


@asynccontextmanager
async def watch(
    redis_conn_id: str, watched: Sequence[Watched], *, interval_seconds: float
) -> AsyncIterator[AsyncIterator[Reading]]:
    """
    Watch depths and other answers; all watches of a connection on this event loop share one poller.

    The block gets an iterator of readings that never ends. The first comes at once, the others at least every
    ``interval_seconds``. A slow reader misses readings and never gets an old one. While Redis cannot be reached, a
    reading holds the error for everything watched. Leaving the block of the last watch closes the poller's connections.

    :param redis_conn_id: the Airflow connection.
    :param watched: queues and groups, for their depths, and other questions.
    :param interval_seconds: the longest time between two readings while Redis can be reached.
    """
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    poller = pollers.setdefault(redis_conn_id, DepthPoller(redis_conn_id))
    joined = _Watch(tuple(watched), max(_GATHER_SECONDS, interval_seconds))
    poller.join(joined)
    try:
        yield poller.readings(joined)
    finally:
        if poller.leave(joined):
            if pollers.get(redis_conn_id) is poller:
                del pollers[redis_conn_id]
            await poller.stop()


class DepthPoller:
    """
    Reads all that is watched on one connection: depths in one write per Redis server and interval, the rest in another.

    It survives every error: it tries again after a pause that doubles up to 30 seconds, with jitter, and logs one
    warning a minute. After an error it looks the Airflow connection up anew, so a changed password takes effect.

    :param redis_conn_id: the Airflow connection.
    :param clock: a monotonic clock, for the minute between two warnings.
    """

    def __init__(self, redis_conn_id: str, clock: Callable[[], float] | None = None) -> None:
        self._redis_conn_id = redis_conn_id
        self._clock = clock or asyncio.get_running_loop().time
        self._watches: set[_Watch] = set()
        self._joined = asyncio.Event()
        self._next: asyncio.Future[Reading]  # made with the task
        self._gateway: RedisGateway | None = None
        self._failures = 0
        self._warned_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, watch: _Watch) -> None:
        """Read what a watch asks for too, from now on."""
        self._watches.add(watch)
        self._joined.set()
        if self._task is None or self._task.done():
            self._next = asyncio.get_running_loop().create_future()
            # In a context of its own: the lines that it logs belong to no single task.
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name=f"sluicegate depths of {self._redis_conn_id}", context=contextvars.Context()
            )

    def leave(self, watch: _Watch) -> bool:
        """Forget a watch; return whether it was the last."""
        self._watches.discard(watch)
        return not self._watches

    async def readings(self, watch: _Watch) -> AsyncIterator[Reading]:
        """Yield each next reading that has all that a watch asks for."""
        while True:
            reading = await asyncio.shield(self._next)
            if all(one in reading for one in watch.watched):
                yield {one: reading[one] for one in watch.watched}

    async def stop(self) -> None:
        """End the polling, and close its connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)  # its watches got its error
        await self._disconnect()

    async def run_once(self) -> float:
        """Read all that is watched once, and give the reading to the watches; return the seconds until the next."""
        watched = sorted({one for watch in self._watches for one in watch.watched}, key=str)
        interval = min(watch.interval_seconds for watch in self._watches)
        try:
            reading: Reading = await self._read(watched)
        except Exception as error:  # noqa: BLE001  (each watch decides what it means)
            reading = dict.fromkeys(watched, error)
            await self._disconnect()
            longest = min(_MAX_PAUSE_SECONDS, max(1.0, interval) * float(2**self._failures))
            pause = longest * random.uniform(0.5, 1)
            self._failures = min(self._failures + 1, 16)
            self._warn(error, pause)
        else:
            pause = interval
            if self._failures:
                _log.info("connection %r: depths are read again", self._redis_conn_id)
            self._failures, self._warned_at = 0, None
            for place, depth in reading.items():
                if _is_place(place) and not isinstance(depth, Exception):
                    emit_depth(place, depth)
        self._next, done = asyncio.get_running_loop().create_future(), self._next
        done.set_result(reading)
        return pause

    async def _run(self) -> None:
        try:
            await self._poll()
        except Exception as error:  # a fault here must not leave the watches waiting for ever
            self._next.set_exception(error)
            raise

    async def _poll(self) -> None:
        while self._watches:
            self._joined.clear()
            pause = await self.run_once()
            if self._failures:  # a trigger that starts now changes nothing about Redis
                await asyncio.sleep(pause)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._joined.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    async def _read(self, watched: Sequence[Watched]) -> Reading:
        library = await import_async("sluicegate.asyncio.depths")
        if self._gateway is None:
            url = await RedisQueueHook(self._redis_conn_id).aconnection_url()
            self._gateway = library.RedisGateway(url=url)
        reading: dict[Any, Any] = {}
        if places := [one for one in watched if _is_place(one)]:
            reading |= await library.read_depths(self._gateway, places, retry=False)
        questions: list[Any] = [one for one in watched if not _is_place(one)]
        calls = [one.calls() for one in questions]
        replies = await self._gateway.execute_many([call for each in calls for call in each], retry=False)
        for question, each in zip(questions, calls, strict=True):
            answers, replies = replies[: len(each)], replies[len(each) :]
            errors = [answer for answer in answers if isinstance(answer, Exception)]
            reading[question] = errors[0] if errors else question.answer(answers)
        return reading

    async def _disconnect(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.aclose()

    def _warn(self, error: Exception, pause: float) -> None:
        now = self._clock()
        if self._warned_at is None or now - self._warned_at >= _WARNING_SECONDS:
            self._warned_at = now
            _log.warning(
                "connection %r: the depths of %d queues cannot be read, trying again in %.0f s and so on: %s",
                *(self._redis_conn_id, len({one for watch in self._watches for one in watch.watched}), pause, error),
            )


def _is_place(watched: Any) -> bool:
    from sluicegate.place import Place

    return isinstance(watched, Place)
