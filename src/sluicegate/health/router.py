"""Serves health checks with FastAPI: `/healthz` for a liveness probe, `/readyz` for a readiness probe."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from sluicegate.clock import elapsed_clock
from sluicegate.errors import RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.health.checking import Beating, check_health
from sluicegate.health.limits import HealthLimits
from sluicegate.health.report import HealthCheck, HealthReport
from sluicegate.place import Place
from sluicegate.survey import FoundPlace

__all__ = ["health_router"]

_KEPT_SECONDS = 1.0  # however often probes ask, Redis is asked once per second
_NO_LIMITS = HealthLimits()
ShowsDetails = Callable[[Request], bool | Awaitable[bool]]


class Listed(Protocol):
    """Says which places there are, such as `PlaceDirectory`."""

    def places(self) -> Iterable[Place | FoundPlace]:
        """Return the places to look at."""


def health_router(
    gateway: RedisGateway,
    places: Iterable[Place | FoundPlace] | Listed = (),
    *,
    limits: HealthLimits = _NO_LIMITS,
    limits_of: Mapping[Place, HealthLimits] | None = None,
    workers: Iterable[Beating] = (),
    shows_details: bool | ShowsDetails = True,
) -> APIRouter:
    """Make the routes `/healthz` and `/readyz` for an application of your own.

    `/healthz` says that the process answers, and looks at nothing else: a probe that restarts a process must not do so
    because Redis is away. `/readyz` answers 503 when a check of `check_health` fails. Neither asks for a login; protect
    them as you protect the other routes of your application, or leave the details out.

    Args:
        gateway: how Redis is reached.
        places: what to look at, or a `PlaceDirectory`.
        limits: of every place, and of the workers.
        limits_of: instead, the limits of single places.
        workers: of this process, whose loops must have run lately.
        shows_details: whether `/readyz` lists its checks, which name queues; a function decides by the request.
    """
    router = APIRouter()
    watched = tuple(workers)
    lock = threading.Lock()
    kept: list[tuple[float, HealthReport]] = []

    def look() -> HealthReport:
        try:
            wanted = places if isinstance(places, Iterable) else places.places()
        except RedisMessageQueueError as error:
            return HealthReport([HealthCheck("redis", False, str(error))])
        return check_health(gateway, wanted, limits=limits, limits_of=limits_of, workers=watched)

    def report() -> HealthReport:
        with lock:
            if not kept or elapsed_clock() - kept[0][0] > _KEPT_SECONDS:
                kept[:] = [(elapsed_clock(), look())]
            return kept[0][1]

    @router.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", include_in_schema=False)
    async def readyz(request: Request) -> JSONResponse:
        """Say whether the process is fit for work."""
        found = await run_in_threadpool(report)
        shown: Any = shows_details(request) if callable(shows_details) else shows_details
        if inspect.isawaitable(shown):
            shown = await shown
        said = found.as_json()
        if not shown:
            del said["checks"]
        return JSONResponse(said, 200 if found.is_ready else 503)

    return router
