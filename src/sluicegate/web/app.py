"""The application of the page; it does no I/O until its first request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from sluicegate.errors import ConfigurationError
from sluicegate.gateway import RedisGateway
from sluicegate.health import HealthLimits, health_router
from sluicegate.health.checking import Beating
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, PlaceDirectory
from sluicegate.web import acting, job_lists, leases, login_routes, looking, messages, refusals, streaming
from sluicegate.web.access import Access, TokenAccess
from sluicegate.web.guard import Guard, GuardMiddleware
from sluicegate.web.masking import Masks
from sluicegate.web.page import FixedPlaces, Page
from sluicegate.web.rows import Gates
from sluicegate.web.sampling import Sampler

__all__ = ["create_app"]

_STATIC = Path(__file__).parent / "static"
_HEALTH_PATHS = ("/healthz", "/readyz")
_ICON_PATH = "/favicon.ico"  # what browsers ask for by themselves, before a login too
_RETRY_SECONDS = 5.0  # a visitor waits for no longer while Redis is away


def create_app(
    *,
    url: str | None = None,
    gateway: RedisGateway | None = None,
    places: Sequence[FoundPlace | Place] | None = None,
    gates: Gates | None = None,
    access: Access,
    read_only: bool = False,
    masks: Sequence[str] = (),
    title: str = "Sluicegate",
    origins: Sequence[str] = (),
    health: HealthLimits | None = None,
    workers: Sequence[Beating] = (),
    open_health: bool = False,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """Make the web page of the queues, streams and job lists on one Redis: an ASGI application.

    It can be served alone or mounted under any prefix. Nothing is read before the first request; then one thread reads
    all places once per second for all viewers.

    Args:
        url: where Redis is; see `Address.parse`.
        gateway: instead, how it is reached. The page closes a gateway that it made itself only.
        places: the only places to show; None: whatever is found, looked for again every minute.
        gates: by the name of a queue, or `stream/group`: the gates of its sensors, drawn as lines in its chart.
        access: who may look and act: `TokenAccess`, or an object of the mounting application.
        read_only: refuse everything that would change a queue.
        masks: what of payloads and headers must not be shown, such as `card.number` or `*.password`; see `Masks`.
        title: in the head of the page.
        origins: further origins from which writes are accepted, for a proxy that rewrites the host.
        health: the limits of `/readyz`.
        workers: of this process, whose loops `/readyz` looks at.
        open_health: answer `/healthz` and `/readyz` to anybody, `/readyz` then without its reasons.
        routers: routes of your own, before those of the page, and behind the same checks.

    Raises:
        ConfigurationError: not exactly one of url and gateway, or an option that cannot work.
    """
    if (url is None) == (gateway is None):
        raise ConfigurationError("the page needs exactly one of url and gateway")
    for method in ("may_look", "may_act"):
        if not callable(getattr(access, method, None)):
            raise ConfigurationError(f"access needs a method {method}(request); take TokenAccess(token) or write one")
    own = gateway is None
    reached = gateway or RedisGateway(url=url, retry_budget_seconds=_RETRY_SECONDS)
    fixed = None if places is None else FixedPlaces(places)
    directory = None if fixed is not None else PlaceDirectory(reached)
    listed = fixed or directory
    assert listed is not None
    sampler = Sampler(reached, listed, gates or {})

    def close() -> None:
        sampler.close()
        if directory is not None:
            directory.close()
        if own:
            reached.close()

    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan(close))
    has_login = isinstance(access, TokenAccess)
    app.state.access, app.state.has_login = access, has_login
    app.state.viewers = streaming.Viewers()
    app.state.close = close
    app.state.page = Page(
        title=title,
        gateway=reached,
        places=listed,
        sampler=sampler,
        masks=Masks(masks),
        read_only=read_only,
        allowed=None if fixed is None else frozenset(each.place for each in fixed.places()),
    )
    app.state.guard = Guard(
        access=access,
        read_only=read_only,
        open_paths=(
            _ICON_PATH,
            *(login_routes.LOGIN_PATHS if has_login else ()),
            *(_HEALTH_PATHS if open_health else ()),
        ),
        logins=("/login",) if has_login else (),
        origins=origins,
        login_page=login_routes.login_page(401) if has_login else None,
    )
    refusals.add_handlers(app)
    for router in routers:
        app.include_router(router)
    for part in (looking, streaming, messages, leases, job_lists, acting, *([login_routes] if has_login else [])):
        app.include_router(part.router)
    app.include_router(
        health_router(
            reached,
            listed,
            limits=health or HealthLimits(),
            workers=workers,
            shows_details=app.state.guard.knows if open_health else True,
        )
    )
    app.add_api_route("/", _index, methods=["GET"])
    app.add_api_route(_ICON_PATH, _icon, methods=["GET"])
    app.mount("/static", StaticFiles(directory=_STATIC, check_dir=False), name="static")
    app.add_middleware(GuardMiddleware, guard=app.state.guard)
    return app


async def _index() -> FileResponse:
    """Return the page itself.

    Raises:
        HTTPException: it was not installed.
    """
    page = _STATIC / "index.html"
    if not page.is_file():
        raise HTTPException(404, "the files of the page are not installed")
    return FileResponse(page)


async def _icon() -> FileResponse:
    """Return the icon of the page."""
    return FileResponse(_STATIC / "mark.svg", media_type="image/svg+xml")


def _lifespan(close: Callable[[], None]) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Close the page with its server; one that is mounted stays open, because its lifespan is not run."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(close)

    return lifespan
