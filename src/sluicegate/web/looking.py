"""Routes for looking at all places: the session, the overview, and one place."""

from __future__ import annotations

from importlib import metadata

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.errors import RedisMessageQueueError
from sluicegate.survey import read_snapshots
from sluicegate.web.answers import answer
from sluicegate.web.history import History
from sluicegate.web.page import Here, Named, found_place, guard_of
from sluicegate.web.rows import place_shape

__all__ = ["router"]

router = APIRouter()


@router.get("/api/session")
async def session(request: Request, here: Here) -> Response:
    """Describe the page to its own script: whether this visitor may act, and the token for writes."""
    guard = guard_of(request)
    said = {
        "title": here.title,
        "server": here.gateway.server,
        "version": metadata.version("sluicegate"),
        "read_only": here.read_only,
        "may_act": await guard.may_act(request),
        "csrf": await guard.csrf_token(request),
        "demo": bool(getattr(request.app.state, "demo", False)),
        "masks": bool(here.masks),
        "logout": bool(request.app.state.has_login),
    }
    return answer(said)


@router.get("/api/overview")
def overview(here: Here) -> Response:
    """Return every place as it was at most a second ago."""
    return Response(here.sampler.look().overview_json, media_type="application/json")


@router.get("/api/place")
def place(named: Named = Depends(found_place)) -> Response:  # noqa: B008  (FastAPI's way to declare a dependency)
    """Return one place with its chart and gates; one that is not in the overview is read by itself."""
    sample = named.page.sampler.look()
    if (shape := sample.place(named.found)) is not None:
        return answer(shape)
    seen = read_snapshots(named.page.gateway, [named.place], retry=False)[named.place]
    if isinstance(seen, RedisMessageQueueError):
        raise seen
    return answer(place_shape(named.found, seen, History(), {}, sample.at))
