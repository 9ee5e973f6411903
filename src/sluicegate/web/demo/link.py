"""A link that opens the page once without its login form."""

from __future__ import annotations

import hmac
import threading

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sluicegate.web.access import TokenAccess
from sluicegate.web.guard import HEADERS

__all__ = ["OneTimeLink"]

_PATH = "/open"
# The page itself asks for its address: a cookie of this site is not sent with a redirect that began on another one.
_OPENED = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sluicegate</title>'
    '<meta http-equiv="refresh" content="0;url=./"><p><a href="./">Open the page</a></p></html>'
)
_USED = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sluicegate</title>'
    '<p>This link was used before. The terminal shows a token for the <a href="./">login form</a>.</p></html>'
)


class OneTimeLink:
    """Answers `/open?once=SECRET` with a login, the first time.

    Args:
        app: the page, with its guard.
        access: of the page.
        secret: the link's.
    """

    def __init__(self, app: ASGIApp, *, access: TokenAccess, secret: str) -> None:
        self._app = app
        self._access = access
        self._secret = secret.encode()
        self._is_used = False
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the link, and pass everything else to the page."""
        if scope["type"] != "http" or scope["path"] != _PATH or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        answer = self._open(Request(scope).query_params.get("once", ""))
        for name, value in HEADERS.items():
            answer.headers[name] = value
        await answer(scope, receive, send)

    def _open(self, given: str) -> Response:
        with self._lock:
            right = hmac.compare_digest(given.encode(errors="replace"), self._secret)
            if not right or self._is_used:
                return HTMLResponse(_USED, 403)
            self._is_used = True
        answer = HTMLResponse(_OPENED)
        answer.set_cookie(self._access.cookie, self._access.new_session(), path="/", httponly=True, samesite="strict")
        return answer
