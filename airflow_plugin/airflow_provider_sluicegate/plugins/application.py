"""The application that Airflow's API server mounts: a page per connection, and the way from a task to its queue."""

from __future__ import annotations

import html
import threading
import time
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.plugins.access import USER, AirflowAccess
from airflow_provider_sluicegate.plugins.settings import PageSettings, page_path, read_settings
from airflow_provider_sluicegate.plugins.tasks import TaskPlace, place_of_task
from sluicegate.errors import RedisMessageQueueError
from sluicegate.web.app import create_app
from sluicegate.web.guard import HEADERS
from sluicegate.web.refusals import add_handlers

__all__ = ["create_plugin_app"]

_LOOK_AGAIN_SECONDS = 30.0  # after which a connection that was changed in Airflow has another page

router = APIRouter(dependencies=[Depends(requires_access_view(AccessView.PLUGINS))])


def create_plugin_app() -> FastAPI:
    """
    Make the application that Airflow mounts; every one of its routes asks Airflow who the visitor is.

    :raises ConfigurationError: an option of the section ``[sluicegate]`` that cannot work.
    """
    app = FastAPI(title="Sluicegate", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.pages = Pages(read_settings())
    app.include_router(router)
    add_handlers(app)
    app.add_middleware(SecurityHeaders)
    return app


class SecurityHeaders:
    """Sends the headers of the page with every answer, refusals included."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _LOWERED if name.encode() not in names),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


_LOWERED = [(name.lower(), value) for name, value in HEADERS.items()]


class Pages:
    """
    The page of each connection, made when somebody first looks at it.

    :param settings: which connections, and how they are shown.
    """

    def __init__(self, settings: PageSettings) -> None:
        self.settings = settings
        self._made: dict[str, tuple[float, str, FastAPI]] = {}
        self._lock = threading.Lock()

    def of(self, conn_id: str) -> FastAPI:
        """
        Return the page of a connection, a new one after the connection has changed.

        :raises HTTPException: there is no page for it.
        """
        if conn_id not in self.settings.connections:
            raise HTTPException(404, f"connection {conn_id!r} has no page; name it in [sluicegate] ui_connections")
        with self._lock:
            looked_at, url, app = self._made.get(conn_id, (float("-inf"), "", None))
            if app is not None and time.monotonic() - looked_at < _LOOK_AGAIN_SECONDS:
                return app
            now = self._url(conn_id)
            if app is None or now != url:
                if app is not None:
                    app.state.close()
                app = self._make(conn_id, now)
            self._made[conn_id] = (time.monotonic(), now, app)
            return app

    def close(self) -> None:
        """Close all pages."""
        for _, _, app in self._made.values():
            app.state.close()
        self._made.clear()

    @staticmethod
    def _url(conn_id: str) -> str:
        try:
            return RedisQueueHook(conn_id).connection_url()
        except RedisMessageQueueError:
            raise
        except Exception as error:  # noqa: BLE001  (Airflow says it in several ways, some with the connection's fields)
            raise HTTPException(
                404, f"connection {conn_id!r} cannot be used ({type(error).__name__}); define it in Airflow"
            ) from None

    def _make(self, conn_id: str, url: str) -> FastAPI:
        settings = self.settings
        access = AirflowAccess()
        return create_app(
            url=url,
            access=access,
            gates=settings.gates,
            read_only=settings.is_read_only,
            masks=settings.masks,
            title=f"Queues of {conn_id}",
            origins=access.origins,
        )


class _Forwarded(Response):
    """Answers a request with the page of a connection."""

    def __init__(self, app: FastAPI, root: str) -> None:
        super().__init__()
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "root_path": self._root, "app": self._app}, receive, send)


@router.get("/")
def index(request: Request) -> Response:
    """Lead to the page of the only connection, or list those that have one."""
    pages: Pages = request.app.state.pages
    conn_ids = pages.settings.connections
    if len(conn_ids) == 1:
        return RedirectResponse(f".{page_path(conn_ids[0])}", 303)
    return _listing("Queues", "", conn_ids, ".")


@router.get(
    "/task/{dag_id}/{run_id}/{task_id}/{map_index}",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))],
)
def task(request: Request, dag_id: str, run_id: str, task_id: str, map_index: str) -> Response:
    """Lead from a task instance to the page of its queue, as far as it is known which one that is."""
    pages: Pages = request.app.state.pages
    index = int(map_index) if map_index.lstrip("-").isdigit() else -1  # Airflow leaves it out for some tasks
    found: TaskPlace | None = place_of_task(dag_id, run_id, task_id, index)
    if found is None:
        why = "This task has not begun, or works on no queue that is known. Its queue is known once it has run."
        return _listing("Queue of this task", why, pages.settings.connections, "../../../../..")
    if found.conn_id not in pages.settings.connections:
        why = f"This task uses the connection {found.conn_id}, which has no page; see [sluicegate] ui_connections."
        return _listing("Queue of this task", why, pages.settings.connections, "../../../../..")
    return RedirectResponse(f"../../../..{page_path(found.conn_id, found.place, is_jobs=found.is_jobs)}", 303)


@router.get("/connections/{connection_id}")
def without_slash(request: Request, connection_id: str) -> Response:
    """Add the slash, without which the page's own links would be those of its parent."""
    return RedirectResponse(f".{page_path(connection_id)}".replace("/connections", "", 1), 303)


@router.api_route("/connections/{connection_id}/{path:path}", methods=["GET", "HEAD", "POST"])
async def page(request: Request, user: GetUserDep, connection_id: str, path: str) -> Response:
    """Serve the page of a connection; its guard checks everything else."""
    pages: Pages = request.app.state.pages
    app = await run_in_threadpool(pages.of, connection_id)
    request.scope[USER] = user
    root: str = request.scope.get("root_path", "")
    return _Forwarded(app, f"{root}/connections/{connection_id}")


def _listing(title: str, why: str, conn_ids: tuple[str, ...], up: str) -> HTMLResponse:
    links = "".join(
        f'<li><a href="{html.escape(up + page_path(conn_id))}">{html.escape(conn_id)}</a></li>' for conn_id in conn_ids
    )
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title></head><body><h1>{html.escape(title)}</h1><p>{html.escape(why)}</p>"
        f"<p>Pages of the connections:</p><ul>{links}</ul></body></html>"
    )
