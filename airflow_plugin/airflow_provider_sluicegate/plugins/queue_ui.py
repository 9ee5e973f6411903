"""
Show the page of the queues inside Airflow.

Airflow imports this module in every process, workers and DAG processors included, so it imports nothing heavy: the page
is made at its first request, in the API server.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.plugins.settings import PREFIX, base_path, is_enabled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from airflow.plugins_manager import AirflowPlugin
else:
    AirflowPlugin = compat.plugin_base()

__all__ = ["SluicegatePlugin"]


class _LazyApplication:
    """Is mounted by Airflow, and makes the application when it gets its first request."""

    def __init__(self) -> None:
        self._application: Any = None
        self._lock = threading.Lock()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[..., Awaitable[Any]],
        send: Callable[..., Awaitable[Any]],
    ) -> None:
        if self._application is None:
            from asgiref.sync import sync_to_async

            await sync_to_async(self._make, thread_sensitive=False)()
        await self._application(scope, receive, send)

    def _make(self) -> None:
        with self._lock:
            if self._application is None:
                from airflow_provider_sluicegate.plugins.application import create_plugin_app

                self._application = create_plugin_app()


def _applications() -> list[dict[str, Any]]:
    return [{"app": _LazyApplication(), "url_prefix": PREFIX, "name": "Sluicegate"}] if is_enabled() else []


def _views() -> list[dict[str, Any]]:
    """Return the entry of the navigation and the tab of task instances; Airflow shows both in a frame."""
    if not is_enabled():
        return []
    page = f"{base_path()}{PREFIX}"
    return [
        {
            "name": "Queues",
            "href": f"{page}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "sluicegate-queues",
        },
        {
            "name": "Queue",
            "href": f"{page}/task/{{DAG_ID}}/{{RUN_ID}}/{{TASK_ID}}/{{MAP_INDEX}}",
            "destination": "task_instance",
            "url_route": "sluicegate-queue",
        },
    ]


class SluicegatePlugin(AirflowPlugin):
    """
    Mounts the page for each configured connection, and links to it from the navigation and from task instances.

    Every route asks for an authenticated user who may see plugins. Whoever changes a queue needs the right to edit its
    connection, and the request must come from Airflow's own site. The section ``[sluicegate]`` of Airflow's
    configuration says which connections have a page, and what it shows.
    """

    name = "sluicegate"
    fastapi_apps = _applications()
    external_views = _views()
