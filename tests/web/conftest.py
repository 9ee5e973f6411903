"""Pages of the test's server, with a client that knows the token and one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from fastapi import FastAPI
from fastapi.testclient import TestClient

from sluicegate.web import TokenAccess, create_app
from tests.support.servers import RedisServer

TOKEN = "a-token-that-nobody-guesses"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
MakeApp = Callable[..., FastAPI]


class Visitor:
    """A client of a page that sends the token, and with writes whatever the page's own script sends."""

    def __init__(self, app: FastAPI) -> None:
        self.bare = TestClient(app)
        self.csrf: str = self.get("/api/session").json()["csrf"]

    def get(self, path: str, **options: Any) -> Any:
        """Send a GET."""
        return self.bare.get(path, headers=BEARER, **options)

    def post(self, path: str, body: object = None, *, headers: dict[str, str] | None = None) -> Any:
        """Send a POST as the page's own script does."""
        own = {**BEARER, "X-Sluicegate-CSRF": self.csrf, "Origin": "http://testserver", **(headers or {})}
        return self.bare.post(path, json={} if body is None else body, headers=own)

    def ok(self, path: str, body: object = None) -> Any:
        """Send a POST that must succeed, and return its JSON."""
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def make_app(client: redis.Redis, server: RedisServer) -> Iterator[MakeApp]:
    """Yield a function that makes pages of the test's server."""
    made: list[FastAPI] = []

    def make(**options: Any) -> FastAPI:
        app = create_app(**{"url": server.url, "access": TokenAccess(TOKEN), **options})
        made.append(app)
        return app

    yield make
    for app in made:
        app.state.close()


@pytest.fixture
def visitor(make_app: MakeApp) -> Visitor:
    """Return a visitor of a page that may do everything."""
    return Visitor(make_app())
