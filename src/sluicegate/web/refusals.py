"""Answers that are errors: one JSON form for all of them, without payloads, passwords or tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from sluicegate.errors import (
    BatchChangedError,
    GroupNotFoundError,
    JobNotFoundError,
    QueueBackpressureError,
    RedisAccessError,
    RedisMemoryError,
    RedisMessageQueueError,
    RedisRefusedError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
    WrongKeyTypeError,
)

__all__ = ["add_handlers", "described", "refusal"]

_NAMES = {
    400: "BadRequest",
    401: "NotAuthenticated",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "TooLarge",
    415: "NotJson",
    429: "TooManyAttempts",
    503: "Unavailable",
}
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((GroupNotFoundError, JobNotFoundError), 404),
    ((QueueBackpressureError, WrongKeyTypeError, BatchChangedError), 409),
    (
        (RedisUnavailableError, RedisRefusedError, RetryBudgetExhaustedError, RedisMemoryError, RedisAccessError),
        503,
    ),
    ((RedisMessageQueueError, ValueError, TypeError), 400),
)


def described(error: Exception) -> dict[str, str]:
    """Return an error as the page shows it: its class and, if it is the library's, its text."""
    if isinstance(error, RedisMessageQueueError):
        return {"type": type(error).__name__, "message": str(error)}
    return {"type": type(error).__name__, "message": "the server's log has the details"}


def refusal(
    status: int, message: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer that refuses a request."""
    body = {"error": {"type": kind or _NAMES.get(status, "Error"), "message": message}}
    return JSONResponse(body, status, dict(headers or {}))


def add_handlers(app: FastAPI) -> None:
    """Answer every error of a route in the page's JSON form."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(RedisMessageQueueError, _failed)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail), headers=error.headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Say which fields are invalid, without their values."""
    assert isinstance(error, RequestValidationError)
    found = [f"{_place(each)}: {each['msg']}" for each in error.errors()]
    return refusal(400, "; ".join(found))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    status = next(status for kinds, status in _STATUSES if isinstance(error, kinds))
    said = described(error)
    return refusal(status, said["message"], kind=said["type"])


def _place(error: Any) -> str:
    return ".".join(str(part) for part in error["loc"] if part not in ("body", "query")) or "body"
