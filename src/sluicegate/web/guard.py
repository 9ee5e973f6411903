"""What every request goes through before any route: authentication, checks of writes, and headers of every answer."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluicegate.web.access import Access, ask, csrf_token
from sluicegate.web.refusals import refusal

__all__ = ["CSRF_HEADER", "HEADERS", "Guard", "GuardMiddleware", "relative_path"]

CSRF_HEADER = "x-sluicegate-csrf"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_READS = ("GET", "HEAD")
_log = logging.getLogger("sluicegate")


def relative_path(scope: Scope) -> str:
    """Return the path of a request below the place where the page is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path


class Guard:
    """Decides about every request before any route sees it, so that no route, file or stream can be reached around it.

    Args:
        access: who may look and act.
        read_only: refuse every write but the logout.
        open_paths: read by anybody: the login form and, if asked for, probes.
        logins: writes that need no login, and check it themselves.
        origins: further origins from which writes are accepted, such as `https://airflow.example.org` before a proxy
            that rewrites the host.
        login_page: the answer to a visitor of the page who is not logged in.
        max_body_bytes: largest body of a write.
        csrf_secret: for an access without one of its own; random by default.
    """

    def __init__(
        self,
        *,
        access: Access,
        read_only: bool,
        open_paths: Collection[str] = (),
        logins: Collection[str] = (),
        origins: Collection[str] = (),
        login_page: Response | None = None,
        max_body_bytes: int = 2 * 1024 * 1024,
        csrf_secret: bytes | None = None,
    ) -> None:
        self._access = access
        self._read_only = read_only
        self._open_paths = frozenset(open_paths)
        self._logins = frozenset(logins)
        self._hosts = frozenset(urlsplit(origin).netloc.lower() for origin in origins)
        self._login_page = login_page
        self._max_body_bytes = max_body_bytes
        self._csrf_secret = csrf_secret or secrets.token_bytes(32)

    async def admit(self, request: Request, receive: Receive) -> Receive:
        """Check a request; return where its body is read from.

        Raises:
            HTTPException: it is refused.
        """
        path, reads = relative_path(request.scope), request.method in _READS
        if reads and path in self._open_paths:
            return receive
        if not reads:
            self._check_origin(request)
        if path not in self._logins and not await self.may_look(request):
            raise HTTPException(401, "log in first, or send the header Authorization: Bearer TOKEN")
        if reads:
            return receive
        if path not in self._logins:
            await self._check_write(request, path)
        return await self._bounded(request, receive)

    def refused(self, request: Request, error: HTTPException) -> Response:
        """Return the answer to a request that was not admitted: to a visitor of the page, the login form."""
        wants_page = relative_path(request.scope) in ("", "/") and "text/html" in request.headers.get("accept", "")
        if error.status_code == 401 and wants_page and self._login_page is not None:
            return self._login_page
        return refusal(error.status_code, str(error.detail), headers=error.headers)

    async def may_look(self, request: HTTPConnection) -> bool:
        """Return whether this visitor may see the page.

        Raises:
            HTTPException: the access says with which status it refuses.
        """
        return await ask(self._access.may_look, request)

    async def knows(self, request: HTTPConnection) -> bool:
        """Return whether this visitor may see the page; for a path that is open to all."""
        try:
            return await self.may_look(request)
        except HTTPException:
            return False

    async def csrf_token(self, request: HTTPConnection) -> str:
        """Return the token that writes of this visitor have to bring along."""
        return await csrf_token(self._access, self._csrf_secret, request)

    async def may_act(self, request: HTTPConnection) -> bool:
        """Return whether this visitor may change anything here."""
        if self._read_only:
            return False
        try:
            return await ask(self._access.may_act, request)
        except HTTPException:
            return False

    def _check_origin(self, request: Request) -> None:
        """Refuse a write that another site's page has made a browser send.

        Raises:
            HTTPException: the browser says that it comes from elsewhere.
        """
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        own = {request.headers.get("host", "").lower(), *self._hosts} - {""}
        is_own = origin is not None and urlsplit(origin).netloc.lower() in own
        if (origin is not None and not is_own) or (site is not None and site != "same-origin" and not is_own):
            raise HTTPException(403, "this write comes from another site; it was refused")

    async def _check_write(self, request: Request, path: str) -> None:
        """Check what only writes need.

        Raises:
            HTTPException: the page is read-only, the visitor may only look, or the request is not the page's own.
        """
        if path != "/logout":
            if self._read_only:
                raise HTTPException(403, "this page is read-only")
            if not await ask(self._access.may_act, request):
                raise HTTPException(403, "you may look at this page, but not change anything")
        given = request.headers.get(CSRF_HEADER, "").encode(errors="replace")
        if not hmac.compare_digest(given, (await self.csrf_token(request)).encode()):
            raise HTTPException(
                403, "the header X-Sluicegate-CSRF is missing or stale; read its value from api/session again"
            )
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "send the body as application/json")

    async def _bounded(self, request: Request, receive: Receive) -> Receive:
        """Read the body up to the limit, and return a function that yields it again.

        Raises:
            HTTPException: the body is larger.
        """
        most = self._max_body_bytes
        announced = request.headers.get("content-length", "")
        body, more = bytearray(), True
        while more and len(body) <= most and not (announced.isdigit() and int(announced) > most):
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > most or (announced.isdigit() and int(announced) > most):
            raise HTTPException(413, f"the body is larger than {most:,} bytes", {"Connection": "close"})
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        return again


class GuardMiddleware:
    """Puts a guard before an application, its headers on every answer, and an answer of ours in place of a traceback.

    Args:
        app: the application.
        guard: decides.
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page has no WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        request, has_begun = Request(scope, receive), False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            body = await self._guard.admit(request, receive)
            await self._app(scope, body, send_with_headers)
        except HTTPException as error:
            await self._guard.refused(request, error)(scope, receive, send_with_headers)
        except Exception as error:
            if has_begun:
                raise
            _log.exception("the page failed at %s %s", request.method, relative_path(scope))
            answer = refusal(500, "the server's log has the details", kind=type(error).__name__)
            await answer(scope, receive, send_with_headers)
