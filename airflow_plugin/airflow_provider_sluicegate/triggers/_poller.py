"""One poller per event loop and connection reads the depths of all queues and groups that triggers watch there."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.loading import import_async
from airflow_provider_sluicegate.stats import emit_depth

if TYPE_CHECKING:
    from sluicegate import Depth
    from sluicegate.asyncio import RedisGateway
    from sluicegate.place import Place

__all__ = ["DepthPoller", "Reading", "watch_depths"]

Reading = Mapping["Place", "Depth | Exception"]
"""Per queue or group its depth, or why it could not be read."""

_GATHER_SECONDS = 0.05  # triggers that start together are read together, and nothing is read more often
_MAX_PAUSE_SECONDS = 30.0  # between attempts while Redis is away
_WARNING_SECONDS = 60.0
_log = logging.getLogger(__name__)
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, DepthPoller]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, slots=True)
class _Watch:
    places: tuple[Place, ...]
    interval_seconds: float


@asynccontextmanager
async def watch_depths(
    redis_conn_id: str, places: Sequence[Place], *, interval_seconds: float
) -> AsyncIterator[AsyncIterator[Reading]]:
    """
    Watch the depths of some queues or groups; all watches of a connection on this event loop share one poller.

    The block gets an iterator of readings that never ends. The first comes at once, the others at least every
    ``interval_seconds``. A slow reader misses readings and never gets an old one. While Redis cannot be reached, a
    reading holds the error for every queue. Leaving the block of the last watch closes the poller's connections.

    :param redis_conn_id: the Airflow connection.
    :param places: the queues and groups.
    :param interval_seconds: the longest time between two readings while Redis can be reached.
    """
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    poller = pollers.setdefault(redis_conn_id, DepthPoller(redis_conn_id))
    watch = _Watch(tuple(places), max(_GATHER_SECONDS, interval_seconds))
    poller.join(watch)
    try:
        yield poller.readings(watch)
    finally:
        if poller.leave(watch):
            if pollers.get(redis_conn_id) is poller:
                del pollers[redis_conn_id]
            await poller.stop()


class DepthPoller:
    """
    Reads the depths of all watched queues of one connection, in one write per Redis server and interval.

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
        """Read the queues of a watch too, from now on."""
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
        """Yield each next reading that has all queues of a watch."""
        while True:
            reading = await asyncio.shield(self._next)
            if all(place in reading for place in watch.places):
                yield {place: reading[place] for place in watch.places}

    async def stop(self) -> None:
        """End the polling, and close its connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)  # its watches got its error
        await self._disconnect()

    async def run_once(self) -> float:
        """Read all watched queues once, and give the reading to the watches; return the seconds until the next."""
        places = sorted({place for watch in self._watches for place in watch.places}, key=str)
        interval = min(watch.interval_seconds for watch in self._watches)
        try:
            reading: Reading = await self._read(places)
        except Exception as error:  # noqa: BLE001  (each watch decides what it means)
            reading = dict.fromkeys(places, error)
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
                if not isinstance(depth, Exception):
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

    async def _read(self, places: Sequence[Place]) -> Reading:
        library = await import_async("sluicegate.asyncio.depths")
        if self._gateway is None:
            url = await RedisQueueHook(self._redis_conn_id).aconnection_url()
            self._gateway = library.RedisGateway(url=url)
        reading: Reading = await library.read_depths(self._gateway, places, retry=False)
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
                *(self._redis_conn_id, len({place for watch in self._watches for place in watch.places}), pause, error),
            )
