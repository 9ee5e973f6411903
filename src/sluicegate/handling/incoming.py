"""A claimed message before its handler is known: its type, and its payload decoded once."""

from __future__ import annotations

from typing import Any

from sluicegate.errors import InvalidPayloadError, MalformedStoredMessageError
from sluicegate.message import Message

__all__ = ["TYPE_FIELDS", "TYPE_HEADER", "Incoming"]

TYPE_HEADER = "type"
TYPE_FIELDS = ("type", "event_type")
_UNREAD = object()


class Incoming:
    """A claimed message whose payload is decoded at most once."""

    __slots__ = ("_decoded", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._decoded: Any = _UNREAD

    def json(self) -> Any:
        """Return the payload as JSON says.

        Raises:
            InvalidPayloadError: it is not JSON.
        """
        if self._decoded is _UNREAD:
            try:
                self._decoded = self.message.json()
            except ValueError:
                raise InvalidPayloadError("the payload is not JSON", paths=("$",)) from None
        return self._decoded

    @property
    def type(self) -> str | None:
        """Return the message's type: the header `type`, else the field `type` or `event_type` of a JSON object.

        Only a text with at least one character is a type. None for a message without one.
        """
        try:
            found = self.message.headers.get(TYPE_HEADER)
        except MalformedStoredMessageError:  # another program wrote them; the payload may say more
            found = None
        if isinstance(found, str) and found:
            return found
        try:
            payload = self.json()
        except InvalidPayloadError:
            return None
        if isinstance(payload, dict):
            for field in TYPE_FIELDS:
                found = payload.get(field)
                if isinstance(found, str) and found:
                    return found
        return None
