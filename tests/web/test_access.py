"""No route of the page can be reached without access, and none can be made to write by another site."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Mount, Route
from starlette.websockets import WebSocketDisconnect

from sluicegate.errors import ConfigurationError
from sluicegate.web import TokenAccess, create_app
from sluicegate.web.access import AttemptLimit
from tests.web.conftest import BEARER, TOKEN, MakeApp, Visitor

# Every route of the page. A new one belongs here, and all tests below then try it.
READS = (
    "/",
    "/static/main.js",
    "/api/session",
    "/api/overview",
    "/api/place?queue=q",
    "/api/leases?queue=q",
    "/api/consumers?queue=q",
    "/api/messages?queue=q",
    "/api/dead/export?queue=q",
    "/api/jobs?jobs=q",
    "/api/events",
    "/healthz",
    "/readyz",
)
WRITES = (
    "/api/publish?queue=q",
    "/api/redrive?queue=q",
    "/api/purge?queue=q",
    "/api/cancel?queue=q",
    "/api/pause?queue=q",
    "/api/resume?queue=q",
    "/api/reap?queue=q",
    "/api/jobs/cancel?jobs=q",
)
OPEN = {("GET", "/favicon.ico"), ("GET", "/login"), ("GET", "/login.css"), ("POST", "/login")}
LOGOUT = ("POST", "/logout")


class Guest:
    """An access that lets everybody look and nobody act."""

    def may_look(self, request: HTTPConnection) -> bool:
        """Return that the visitor may."""
        return True

    def may_act(self, request: HTTPConnection) -> bool:
        """Return that the visitor may not."""
        return False


class Mounting:
    """An access of a mounting application, with a session named by a header."""

    csrf_secret = b"shared by all processes"

    async def may_look(self, request: HTTPConnection) -> bool:
        """Raise for a stranger, and return whether the visitor is known."""
        if request.headers.get("user") == "suspended":
            raise HTTPException(403, "suspended")
        return "user" in request.headers

    async def may_act(self, request: HTTPConnection) -> bool:
        """Return whether the visitor is the administrator."""
        return request.headers.get("user") == "admin"

    def session_key(self, request: HTTPConnection) -> str:
        """Return the user."""
        return request.headers["user"]


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", route.path
            continue
        assert isinstance(route, Route), f"{route} is neither a route nor a folder; no test tries it"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path


def test_every_route_is_tried_by_the_tests_of_access(make_app: MakeApp) -> None:
    tried = {("GET", path.partition("?")[0]) for path in READS} | {("POST", path.partition("?")[0]) for path in WRITES}
    tried = tried - {("GET", "/static/main.js")} | {("GET", "/static")}

    assert set(routes_of(make_app())) == tried | OPEN | {LOGOUT}


@pytest.mark.parametrize("path", [*READS, "/api/none", "/static/../app.py", "/none"])
def test_a_stranger_sees_nothing(path: str, make_app: MakeApp) -> None:
    stranger = TestClient(make_app())

    for headers in (
        {},
        {"Authorization": "Bearer wrong-token-of-some-length"},
        {"Cookie": f"{TokenAccess(TOKEN).cookie}=9.a.b"},
    ):
        refused = stranger.get(path, headers=headers)
        assert refused.status_code == 401, refused.text
        assert refused.json()["error"]["type"] == "NotAuthenticated"
        assert "script-src 'self'" in refused.headers["content-security-policy"]
    assert stranger.head(path).status_code == 401


@pytest.mark.parametrize("path", [*WRITES, LOGOUT[1]])
def test_a_write_needs_the_token_the_pages_own_origin_and_the_csrf_token(path: str, make_app: MakeApp) -> None:
    visitor = Visitor(make_app())
    stranger = visitor.bare

    assert stranger.post(path, json={}, headers={"X-Sluicegate-CSRF": visitor.csrf}).status_code == 401
    for origin in ("https://evil.example", "null", "http://testserver.evil.example", "http://testserver:81"):
        foreign = visitor.post(path, headers={"Origin": origin})
        assert (foreign.status_code, foreign.json()["error"]["type"]) == (403, "Forbidden"), origin
    assert visitor.post(path, headers={"Origin": "https://evil.example", "Host": "evil.test"}).status_code == 403
    own = {**BEARER, "X-Sluicegate-CSRF": visitor.csrf}
    for site in ("cross-site", "same-site", "none"):
        assert stranger.post(path, json={}, headers={**own, "Sec-Fetch-Site": site}).status_code == 403, site
    assert visitor.post(path, headers={"X-Sluicegate-CSRF": "wrong"}).status_code == 403
    assert stranger.post(path, json={}, headers=BEARER).status_code == 403
    plain = stranger.post(path, content=b"{}", headers={**own, "Content-Type": "text/plain"})
    assert plain.status_code == 415


@pytest.mark.parametrize("path", WRITES)
def test_a_read_only_page_and_one_who_may_only_look_change_nothing(path: str, make_app: MakeApp) -> None:
    for app in (make_app(read_only=True), make_app(access=Guest())):
        visitor = Visitor(app)
        assert visitor.get("/api/session").json()["may_act"] is False
        refused = visitor.post(path)
        assert refused.status_code == 403, refused.text


def test_the_icon_is_there_before_a_login(make_app: MakeApp) -> None:
    icon = TestClient(make_app()).get("/favicon.ico")

    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.text.startswith("<svg")
    assert 'href="favicon.ico"' in TestClient(make_app()).get("/login").text


def test_routes_of_the_application_are_behind_the_same_checks(make_app: MakeApp) -> None:
    own = APIRouter(prefix="/api/own")
    own.add_api_route("/look", lambda: {"looked": True}, methods=["GET"])
    own.add_api_route("/act", lambda: {"acted": True}, methods=["POST"])
    visitor = Visitor(make_app(routers=[own]))

    assert visitor.get("/api/own/look").json() == {"looked": True}
    assert visitor.ok("/api/own/act") == {"acted": True}
    assert visitor.bare.get("/api/own/look").status_code == 401
    assert visitor.bare.post("/api/own/act", json={}, headers=BEARER).status_code == 403
    assert Visitor(make_app(routers=[own], read_only=True)).post("/api/own/act").status_code == 403


def test_other_methods_are_refused_like_writes(make_app: MakeApp) -> None:
    stranger = TestClient(make_app())

    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert stranger.request(method, "/api/overview").status_code == 401, method
    with pytest.raises(WebSocketDisconnect) as closed, stranger.websocket_connect("/api/events"):
        pass
    assert closed.value.code == 1008


def test_the_login_form_sets_a_cookie_that_a_logout_ends(make_app: MakeApp) -> None:
    browser = TestClient(make_app())
    asked = browser.get("/", headers={"Accept": "text/html"})
    assert asked.status_code == 401
    assert '<form method="post" action="login">' in asked.text
    assert browser.get("/login.css").status_code == 200

    wrong = browser.post("/login", data={"token": "wrong"})
    assert wrong.status_code == 401
    assert "This is not the token." in wrong.text
    right = browser.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "./")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie

    csrf = browser.get("/api/session").json()["csrf"]
    stolen = dict(browser.cookies)
    assert browser.post("/logout", json={}, headers={"X-Sluicegate-CSRF": csrf}).status_code == 200
    assert browser.get("/api/session").status_code == 401
    assert TestClient(browser.app, cookies=stolen).get("/api/session").status_code == 401


def test_a_login_from_another_site_is_refused(make_app: MakeApp) -> None:
    browser = TestClient(make_app())

    refused = browser.post("/login", data={"token": TOKEN}, headers={"Origin": "https://evil.example"})

    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


def test_csrf_tokens_are_those_of_one_login(make_app: MakeApp) -> None:
    app = make_app()
    first, second = TestClient(app), TestClient(app)
    for browser in (first, second):
        browser.post("/login", data={"token": TOKEN})
    of_first = first.get("/api/session").json()["csrf"]

    assert second.post("/api/pause?queue=q", json={}, headers={"X-Sluicegate-CSRF": of_first}).status_code == 403
    assert first.post("/api/pause?queue=q", json={}, headers={"X-Sluicegate-CSRF": of_first}).status_code == 200


def test_a_login_to_another_page_of_the_same_host_keeps_the_first(make_app: MakeApp) -> None:
    other = "another-token-of-another-page"
    browser, pages = TestClient(make_app()), [make_app(), make_app(access=TokenAccess(other))]
    for page, token in zip(pages, (TOKEN, other), strict=True):
        one = TestClient(page, cookies=browser.cookies)
        one.post("/login", data={"token": token})
        browser.cookies.update(one.cookies)

    assert len(browser.cookies) == 2
    for page in pages:
        assert TestClient(page, cookies=browser.cookies).get("/api/session").status_code == 200


def test_a_session_ends_in_time_and_cannot_be_forged(make_app: MakeApp) -> None:
    now = [1_000_000.0]
    browser = TestClient(make_app(access=TokenAccess(TOKEN, session_seconds=60, clock=lambda: now[0])))
    browser.post("/login", data={"token": TOKEN})
    assert browser.get("/api/session").status_code == 200
    name = browser.app.state.access.cookie
    end, rest = browser.cookies[name].split(".", 1)

    longer = TestClient(browser.app, cookies={name: f"{int(end) + 1000}.{rest}"})
    assert longer.get("/api/session").status_code == 401
    now[0] += 61
    assert browser.get("/api/session").status_code == 401


def test_wrong_tokens_are_refused_for_a_while(make_app: MakeApp) -> None:
    access = TokenAccess(TOKEN)
    now = [0.0]
    access.limit = AttemptLimit(attempts=3, window_seconds=60, clock=lambda: now[0])
    browser = TestClient(make_app(access=access))
    for _ in range(3):
        assert browser.post("/login", json={"token": "wrong"}).status_code == 401

    late = browser.post("/login", json={"token": TOKEN})
    assert late.status_code == 429
    assert late.headers["retry-after"] == "61"
    assert browser.post("/login", data={"token": TOKEN}).status_code == 429
    assert browser.get("/api/session", headers=BEARER).status_code == 429
    now[0] = 61
    assert browser.post("/login", json={"token": TOKEN}).json() == {"ok": True}


def test_the_limit_forgets_the_longest_silent_clients() -> None:
    limit = AttemptLimit(attempts=1, window_seconds=60, max_clients=2, clock=lambda: 0.0)
    for client in ("a", "b", "c"):
        limit.failed(client)

    assert [limit.seconds_left(client) for client in ("a", "b", "c")] == [0.0, 60.0, 60.0]


def test_a_mounting_application_decides_and_its_csrf_tokens_are_those_of_a_user(make_app: MakeApp) -> None:
    app = Starlette(routes=[Mount("/queues", make_app(access=Mounting()))])
    visitor = TestClient(app)
    ann, admin = {"user": "ann"}, {"user": "admin"}

    assert visitor.get("/queues/api/session").status_code == 401
    assert visitor.get("/queues/login").status_code == 401
    assert visitor.get("/queues/static/main.js").status_code == 401
    suspended = visitor.get("/queues/api/session", headers={"user": "suspended"})
    assert (suspended.status_code, suspended.json()["error"]["message"]) == (403, "suspended")
    of_ann = visitor.get("/queues/api/session", headers=ann).json()
    of_admin = visitor.get("/queues/api/session", headers=admin).json()
    assert (of_ann["may_act"], of_admin["may_act"]) == (False, True)
    path = "/queues/api/pause?queue=q"
    assert visitor.post(path, json={}, headers={**ann, "X-Sluicegate-CSRF": of_ann["csrf"]}).status_code == 403
    assert visitor.post(path, json={}, headers={**admin, "X-Sluicegate-CSRF": of_ann["csrf"]}).status_code == 403
    foreign = {**admin, "X-Sluicegate-CSRF": of_admin["csrf"], "Origin": "https://evil.example"}
    assert visitor.post(path, json={}, headers=foreign).status_code == 403
    other = TestClient(Starlette(routes=[Mount("/queues", make_app(access=Mounting()))]))  # another process
    assert other.post(path, json={}, headers={**admin, "X-Sluicegate-CSRF": of_admin["csrf"]}).status_code == 200


def test_a_proxy_that_rewrites_the_host_is_named(make_app: MakeApp) -> None:
    visitor = Visitor(make_app(origins=["https://queues.example.org"]))

    assert visitor.post("/api/pause?queue=q", headers={"Origin": "https://queues.example.org"}).status_code == 200
    assert visitor.post("/api/pause?queue=q", headers={"Origin": "https://other.example.org"}).status_code == 403


def test_a_body_that_is_too_large_is_refused(make_app: MakeApp) -> None:
    visitor = Visitor(make_app())

    refused = visitor.post("/api/publish?queue=q", {"payload": "x" * (2 * 1024 * 1024)})

    assert refused.status_code == 413
    chunks = iter([b'{"payload": "', *[b"x" * 100_000] * 30, b'"}'])
    headers = {**BEARER, "X-Sluicegate-CSRF": visitor.csrf, "Content-Type": "application/json"}
    assert visitor.bare.post("/api/publish?queue=q", content=chunks, headers=headers).status_code == 413


def test_an_error_of_the_page_itself_shows_nothing_of_it(make_app: MakeApp) -> None:
    app = make_app()

    @app.get("/api/broken")
    def broken() -> None:
        raise LookupError("redis://:password@host")

    answer = TestClient(app).get("/api/broken", headers=BEARER)

    assert answer.status_code == 500
    assert "password" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_short_token_and_missing_access_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="shorter than 16 characters"):
        TokenAccess("short")
    assert "secret" not in repr(TokenAccess("a-long-secret-token"))
    with pytest.raises(ConfigurationError, match="needs a method may_look"):
        create_app(url="redis://localhost", access=object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="exactly one of url and gateway"):
        create_app(access=TokenAccess(TOKEN))
