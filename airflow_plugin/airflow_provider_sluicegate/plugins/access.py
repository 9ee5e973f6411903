"""Ask Airflow who may look at the page of a connection, and who may act on it."""

from __future__ import annotations

import hashlib
import hmac
import inspect
from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_connection, requires_access_view
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.types import Message

from airflow_provider_sluicegate.compat import conf

__all__ = ["USER", "AirflowAccess"]

USER = "airflow_provider_sluicegate.user"
"""Where in the scope of a request the user is, whom the application that Airflow mounts has authenticated."""


class AirflowAccess:
    """
    Lets in whoever Airflow lets see its plugins, and lets act whoever may edit the connection.

    Airflow's custom views would not do for writes: its simple auth manager lets every viewer use them.
    """

    def __init__(self) -> None:
        # All processes of the API server have this secret, so that each accepts the tokens of the others.
        secret = str(conf.get("api", "secret_key", fallback="") or "")
        self.csrf_secret: bytes | None = (
            hmac.digest(secret.encode(), b"sluicegate page", hashlib.sha256) if secret else None
        )
        base = urlsplit(str(conf.get("api", "base_url", fallback="") or ""))
        self.origins = (f"{base.scheme}://{base.netloc}",) if base.netloc else ()

    async def may_look(self, request: HTTPConnection) -> bool:
        """Return whether the visitor may see plugins; :raises HTTPException: 403 for one who may not."""
        return await _asked(requires_access_view(AccessView.PLUGINS), request)

    async def may_act(self, request: HTTPConnection) -> bool:
        """Return whether the visitor may edit the connection; :raises HTTPException: 403 for one who may not."""
        return await _asked(requires_access_connection("PUT"), request)

    def session_key(self, request: HTTPConnection) -> str:
        """Return the user to whom a token against forged writes belongs."""
        user = request.scope.get(USER)
        return "" if user is None else str(user.get_id())


async def _asked(check: Any, request: HTTPConnection) -> bool:
    """
    Ask one of Airflow's dependencies, which are plain or async functions depending on its version.

    With teams, the check of a connection reads a team from the request's body, which here is that of another API: it
    gets an empty one instead.
    """
    user = request.scope.get(USER)
    if user is None:
        raise HTTPException(401, "log in to Airflow first")
    asked = Request(request.scope, _empty)
    if inspect.iscoroutinefunction(check):
        await check(asked, user)
    else:
        await run_in_threadpool(check, asked, user)
    return True


async def _empty() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}
