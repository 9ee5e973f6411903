"""Server-sent events: each sample once for all viewers, and the place that a viewer has open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse

from sluicegate.errors import RedisMessageQueueError
from sluicegate.survey import FoundPlace
from sluicegate.web.answers import encoded
from sluicegate.web.page import Here, found_place
from sluicegate.web.refusals import described
from sluicegate.web.sampling import Sample, Sampler

__all__ = ["MAX_STREAM_SECONDS", "router"]

MAX_STREAM_SECONDS = 600.0
"""A stream ends after so long; the browser connects again, and is authenticated again."""

_HEARTBEAT_SECONDS = 5.0
_MAX_VIEWERS = 200
_RETRY = b"retry: 2000\n\n"

router = APIRouter()


@router.get("/api/events")
async def events(
    request: Request,
    here: Here,
    queue: str | None = None,
    stream: str | None = None,
    group: str | None = None,
    jobs: str | None = None,
) -> StreamingResponse:
    """Send an event after every sample: an `overview`, and a `place` if the query names one.

    The first overview has every place, and later ones what has changed since. With a place in the query, overviews have
    no places. While Redis cannot be read, the overviews say so in their `error`. A `heartbeat` event breaks a longer
    silence.
    """
    asked = None
    if any(name is not None for name in (queue, stream, group, jobs)):
        asked = found_place(here, queue, stream, group, jobs).found
    viewers: Viewers = request.app.state.viewers
    if viewers.count >= _MAX_VIEWERS:
        raise HTTPException(503, f"{_MAX_VIEWERS} viewers are connected already; use api/overview instead")
    return StreamingResponse(
        viewers.follow(here.sampler, asked),
        media_type="text/event-stream",
        # Neither a proxy nor the compression of a mounting application may hold events back.
        headers={"X-Accel-Buffering": "no", "Content-Encoding": "identity"},
    )


class Viewers:
    """The viewers that are connected to one page."""

    def __init__(
        self, *, heartbeat_seconds: float = _HEARTBEAT_SECONDS, most_seconds: float = MAX_STREAM_SECONDS
    ) -> None:
        self.count = 0
        self._heartbeat_seconds = heartbeat_seconds
        self._most_seconds = most_seconds
        self._ending: set[asyncio.Event] = set()

    async def follow(self, sampler: Sampler, asked: FoundPlace | None) -> AsyncIterator[bytes]:
        """Yield events until the viewer leaves, or for ten minutes."""
        loop, news, number = asyncio.get_running_loop(), asyncio.Event(), 0
        unsubscribe = sampler.subscribe(_threadsafe(loop, news))
        self.count += 1
        began = time.monotonic()
        try:
            yield _RETRY
            while time.monotonic() - began < self._most_seconds:
                sample = sampler.latest
                if sample is not None and sample.number != number:
                    for event in await run_in_threadpool(_events, sample, asked, number):
                        yield event
                    number = sample.number
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), self._heartbeat_seconds)
                if not news.is_set():
                    yield _event("heartbeat", b"{}")
                news.clear()
        finally:
            self.count -= 1
            unsubscribe()


def _events(sample: Sample, asked: FoundPlace | None, since: int) -> list[bytes]:
    """Return the events of a sample for a viewer who has had an earlier one; 0 for a new viewer."""
    if asked is None:
        return [_event("overview", sample.news_json(since))]
    found = [_event("overview", sample.moment_json)]
    try:
        # A viewer who has missed a sample would have a gap in the chart.
        shape = sample.place(asked, whole=since == 0 or since != sample.number - 1)
    except RedisMessageQueueError as error:
        return [*found, _event("place", encoded({"error": described(error)}))]
    if shape is not None:
        found.append(_event("place", encoded(shape)))
    return found


def _event(name: str, data: bytes) -> bytes:
    """Return one event; the JSON of its data has no line break in it."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    def wakeup() -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it the viewer's connection
            loop.call_soon_threadsafe(event.set)

    return wakeup
