"""JSON for the page, whatever was stored by whomever."""

from __future__ import annotations

import json as _stdlib
from typing import Any

from starlette.responses import Response

from sluicegate.core import json

__all__ = ["answer", "encoded"]


def encoded(value: Any) -> bytes:
    """Encode an answer; what our own JSON refuses, such as a huge number of another program, is written by Python's."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return _stdlib.dumps(value, default=str).encode()


def answer(value: Any) -> Response:
    """Return a value as the answer to a request."""
    return Response(encoded(value), media_type="application/json")
