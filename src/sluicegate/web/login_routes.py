"""The login form, for a page with a token of its own."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from sluicegate.core import json
from sluicegate.web.access import TokenAccess

__all__ = ["LOGIN_PATHS", "login_page", "router"]

LOGIN_PATHS = ("/login", "/login.css")
_FOLDER = Path(__file__).parent / "login"
_STYLE = (_FOLDER / "login.css").read_text()
_FORM = (_FOLDER / "login.html").read_text()

router = APIRouter()


def login_page(status: int, notice: str = "") -> HTMLResponse:
    """Return the login form; the notice must be a text of ours."""
    return HTMLResponse(_FORM.replace("{notice}", notice), status)


@router.get("/login")
async def form() -> HTMLResponse:
    """Return the login form."""
    return login_page(200)


@router.get("/login.css")
async def style() -> Response:
    """Return the style of the login form, which has to be readable before a login."""
    return Response(_STYLE, media_type="text/css")


@router.post("/login")
async def login(request: Request) -> Response:
    """Check a token and begin a session; a form is answered with the page, and JSON with JSON."""
    access: TokenAccess = request.app.state.access
    is_json = request.headers.get("content-type", "").startswith("application/json")
    token = _token(await request.body(), is_json=is_json)
    try:
        right = access.accepts(request, token)
    except HTTPException as error:
        if is_json:
            raise
        page = login_page(error.status_code, "Too many wrong tokens from this address. Wait a minute.")
        page.headers.update(error.headers or {})
        return page
    if not right:
        if is_json:
            raise HTTPException(401, "this is not the token")
        return login_page(401, "This is not the token.")
    answer: Response = JSONResponse({"ok": True}) if is_json else RedirectResponse("./", 303)
    answer.set_cookie(
        access.cookie,
        access.new_session(),
        path=request.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def logout(request: Request) -> JSONResponse:
    """End the session of this login."""
    access: TokenAccess = request.app.state.access
    access.end_session(request)
    answer = JSONResponse({"ok": True})
    answer.delete_cookie(access.cookie, path=request.scope.get("root_path") or "/", httponly=True, samesite="strict")
    return answer


def _token(body: bytes, *, is_json: bool) -> str:
    """Read the token out of a form or JSON; "" for anything else."""
    if not is_json:
        return parse_qs(body.decode(errors="replace")).get("token", [""])[-1]
    try:
        given = json.loads(body)
    except ValueError:
        return ""
    token = given.get("token") if isinstance(given, dict) else None
    return token if isinstance(token, str) else ""
