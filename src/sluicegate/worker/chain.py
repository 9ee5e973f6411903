# Made from src/sluicegate/asyncio/worker/chain.py by `make format`; edit there.
"""The hooks of the middleware around one call of a handler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sluicegate.errors import HandlerFailedError
from sluicegate.handling.delivery import Delivery
from sluicegate.handling.middleware import Middleware
from sluicegate.handling.retry import Reject
from sluicegate.worker.slots import resolve

__all__ = ["run_chain"]

_log = logging.getLogger("sluicegate")


def run_chain(
    middleware: Sequence[Middleware],
    delivery: Delivery,
    call: Callable[[], Any],
    *,
    false_fails: bool = True,
) -> Any:
    """Call a handler between the hooks, and return its result.

    Args:
        middleware: in the order in which their `before` hooks run.
        delivery: what the hooks get.
        call: calls the handler.
        false_fails: whether a result of False is a failure.

    Raises:
        HandlerFailedError: the handler returned False.
        Exception: what the handler or a hook raised.
    """
    begun: list[Middleware] = []
    try:
        for each in middleware:
            resolve(each.before(delivery))
            begun.append(each)
        result = call()
        if false_fails and result is False:
            raise HandlerFailedError("the handler returned False")
        for each in reversed(begun):
            resolve(each.after(delivery, result))
    except Exception as error:
        failure = _report(begun, delivery, error)
        if failure is error:
            raise
        raise failure from error
    return result


def _report(begun: Sequence[Middleware], delivery: Delivery, error: Exception) -> Exception:
    """Call the `on_error` hooks; returns the error, or the `Reject` that took its place."""
    for each in reversed(begun):
        try:
            resolve(each.on_error(delivery, error))
        except Reject as rejected:
            error = rejected
        except Exception as broken:  # noqa: BLE001  (an observer changes no outcome)
            _log.warning("on_error of %s raised %s", type(each).__name__, type(broken).__name__)
    return error
