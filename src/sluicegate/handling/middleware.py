"""Hooks around the handlers of a worker."""

from __future__ import annotations

from typing import Any

from sluicegate.handling.delivery import Delivery

__all__ = ["Middleware"]


class Middleware:
    """Runs code around every handler of a worker; subclass it and write the hooks that you need.

    `before` hooks run in the order in which the middleware was given, `after` and `on_error` hooks in the reverse
    order. They run around handlers only: a message that reaches none, because its type is unhandled or its payload does
    not validate, is an event and nothing else. In an asyncio worker each hook may be async; a plain one runs in the
    event loop and must not block it.
    """

    def before(self, delivery: Delivery) -> Any:
        """Run before the handler; an exception is a failure of the message, and the handler is not called."""

    def after(self, delivery: Delivery, result: Any) -> Any:
        """Run after a handler that succeeded, before the ack; an exception is a failure of the message.

        Args:
            delivery: the message and what is known of its delivery.
            result: what the handler returned.
        """

    def on_error(self, delivery: Delivery, error: Exception) -> Any:
        """Run after a handler or hook failed, for each middleware whose `before` had ended.

        It observes: what it raises is logged and changes nothing, except `Reject`, which takes the error's place and
        buries the message.

        Args:
            delivery: the message and what is known of its delivery.
            error: what was raised; `HandlerFailedError` when the handler returned False.
        """
