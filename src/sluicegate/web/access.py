"""Who may look at the page, and who may act on it."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["Access", "AttemptLimit", "TokenAccess", "ask", "csrf_token"]

_COOKIE = "sluicegate_session"
_MIN_TOKEN_LENGTH = 16
_MAX_SESSIONS_ENDED = 10_000


@runtime_checkable
class Access(Protocol):
    """Decides about every request to the page; an application that mounts the page passes its own.

    Both methods may be async. A plain one is called in a thread, so that it may block. Instead of returning `False`,
    they may raise Starlette's `HTTPException`, whose status is answered.

    It may have two more members: `csrf_secret` (bytes), which the processes of one deployment share, so that each of
    them accepts the tokens of the others; and `session_key(request)`, which names the visitor's session or user, to
    which a token is bound.
    """

    def may_look(self, request: HTTPConnection, /) -> bool | Awaitable[bool]:
        """Return whether the visitor may see the page; otherwise the answer is 401."""

    def may_act(self, request: HTTPConnection, /) -> bool | Awaitable[bool]:
        """Return whether the visitor may change queues; otherwise the answer is 403."""


class AttemptLimit:
    """Counts the failed logins of each client, and refuses further ones for a while.

    Args:
        attempts: failures that a client may have within the window.
        window_seconds: how long a failure counts.
        max_clients: clients that are remembered; the longest silent one is forgotten first.
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(
        self,
        attempts: int = 10,
        window_seconds: float = 60.0,
        *,
        max_clients: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempts = attempts
        self._window_seconds = window_seconds
        self._max_clients = max_clients
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def seconds_left(self, client: str) -> float:
        """Return for how long a client's attempts are refused; 0 if it may try."""
        with self._lock:
            recent = self._recent(client)
            if len(recent) < self._attempts:
                return 0.0
            return recent[-self._attempts] + self._window_seconds - self._clock()

    def failed(self, client: str) -> None:
        """Count a failed attempt."""
        with self._lock:
            recent = self._recent(client)
            self._failures[client] = [*recent, self._clock()][-self._attempts :]
            self._failures.move_to_end(client)
            while len(self._failures) > self._max_clients:
                self._failures.popitem(last=False)

    def _recent(self, client: str) -> list[float]:
        since = self._clock() - self._window_seconds
        return [when for when in self._failures.get(client, ()) if when > since]


class TokenAccess:
    """Lets in whoever knows one token: by the login form, or as `Authorization: Bearer` from scripts.

    The form sets a cookie that scripts of the page cannot read and that other sites cannot send. It does not hold the
    token, and ends with the session or at logout. Wrong tokens are counted per client address, and refused for a while
    after ten within a minute.

    Args:
        token: at least 16 characters, best from `secrets.token_urlsafe(32)`.
        session_seconds: how long a login lasts.
        clock: seconds since the epoch; injected by tests.

    Attributes:
        cookie: its name, one per token: browsers send the cookies of a host to all of its ports, and so a login to a
            second page of the same host would end the first.

    Raises:
        ConfigurationError: the token is too short to be safe.
    """

    def __init__(
        self, token: str, *, session_seconds: float = 12 * 3600, clock: Callable[[], float] = time.time
    ) -> None:
        if not isinstance(token, str):
            raise OptionTypeError(f"token must be a str, not {type(token).__name__}")
        if len(token.strip()) < _MIN_TOKEN_LENGTH:
            raise ConfigurationError(
                f"the token of the page is shorter than {_MIN_TOKEN_LENGTH} characters, so it could be guessed; make "
                'one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        self._digest = hashlib.sha256(token.strip().encode()).digest()
        self._key = hmac.digest(token.strip().encode(), b"sluicegate page", "sha256")
        self.cookie = f"{_COOKIE}_{hmac.digest(self._key, b'cookie', 'sha256').hex()[:8]}"
        self._session_seconds = session_seconds
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.limit = AttemptLimit()
        self.csrf_secret = hmac.digest(self._key, b"csrf", "sha256")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    async def may_look(self, request: HTTPConnection) -> bool:
        """Return whether the request has the token or the cookie of a login.

        Raises:
            HTTPException: this client has tried too many wrong tokens.
        """
        if self._valid_cookie(request) is not None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.accepts(request, given)

    async def may_act(self, request: HTTPConnection) -> bool:
        """Return the same as `may_look`: one token serves for both, and the page's read-only mode for looking only."""
        return await self.may_look(request)

    def session_key(self, request: HTTPConnection) -> str:
        """Return the login that a request belongs to; "" for one with the token itself."""
        return self._valid_cookie(request) or ""

    def accepts(self, request: HTTPConnection, token: str) -> bool:
        """Compare a token in constant time, and count it if it is wrong.

        Raises:
            HTTPException: this client has tried too many wrong tokens.
        """
        client = request.client.host if request.client else ""
        seconds = self.limit.seconds_left(client)
        if seconds > 0:
            raise HTTPException(
                429, "too many wrong tokens from this address; wait", {"Retry-After": str(int(seconds) + 1)}
            )
        right = hmac.compare_digest(hashlib.sha256(token.strip().encode(errors="replace")).digest(), self._digest)
        if not right:
            self.limit.failed(client)
        return right

    def new_session(self) -> str:
        """Return the value of the cookie for a new login: its end and a random part, signed with the token."""
        said = f"{int(self._clock() + self._session_seconds)}.{secrets.token_urlsafe(16)}"
        return f"{said}.{self._sign(said)}"

    def end_session(self, request: HTTPConnection) -> None:
        """End a login, so that its cookie is no longer accepted by this process."""
        if (session := self._valid_cookie(request)) is not None:
            self._ended[session] = None
            while len(self._ended) > _MAX_SESSIONS_ENDED:
                self._ended.popitem(last=False)

    def _valid_cookie(self, request: HTTPConnection) -> str | None:
        """Return what a signed cookie says, if it is ours, has not ended and was not logged out."""
        said, _, signature = request.cookies.get(self.cookie, "").rpartition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._sign(said).encode()):
            return None
        end = said.partition(".")[0]
        return said if end.isdigit() and int(end) > self._clock() and said not in self._ended else None

    def _sign(self, said: str) -> str:
        return hmac.new(self._key, said.encode(errors="replace"), hashlib.sha256).hexdigest()


async def ask(decide: Callable[..., Any], request: HTTPConnection) -> bool:
    """Return what a method of an access says, sync or async."""
    call = decide if inspect.iscoroutinefunction(decide) else None
    answer = await call(request) if call is not None else await run_in_threadpool(decide, request)
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def csrf_token(access: Access, fallback: bytes, request: HTTPConnection) -> str:
    """Return the token that every write of this visitor has to bring along.

    Args:
        access: of the page.
        fallback: the secret for an access without one of its own.
        request: of the visitor.
    """
    secret: bytes = getattr(access, "csrf_secret", None) or fallback
    name = getattr(access, "session_key", None)
    key = name(request) if name is not None else ""
    if inspect.isawaitable(key):
        key = await key
    return hmac.new(secret, str(key).encode(errors="replace"), hashlib.sha256).hexdigest()
