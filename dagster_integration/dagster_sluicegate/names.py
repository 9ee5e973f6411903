"""The names by which resources and definitions name a queue, or a stream and a group of it."""

from __future__ import annotations

from dataclasses import dataclass

from dagster_sluicegate.urls import is_variable
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

__all__ = ["NO_NAMES", "Names"]


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a resource or a definition gives: of a queue, or of a stream and a group of it.

    Attributes:
        queue_name: of a queue; None for none.
        stream_name: of a stream, instead of a queue; None for none.
        group: of a group of a stream; None for none.

    Raises:
        ConfigurationError: both a queue and a stream or a group of one, or a name that cannot be one.
    """

    queue_name: str | None = None
    stream_name: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.queue_name is not None and self.stream_name is not None:
            raise ConfigurationError(
                f"queue_name={self.queue_name!r} and stream_name={self.stream_name!r} are both given; leave one of "
                "them out"
            )
        if self.queue_name is not None and self.group is not None:
            raise ConfigurationError(
                f"group={self.group!r} needs a stream, and queue_name={self.queue_name!r} names a queue; give "
                "stream_name instead of queue_name, or leave group out"
            )
        for option in ("queue_name", "stream_name", "group"):
            name = getattr(self, option)
            if name is not None and not is_variable(name):
                _check(option, name)

    def __bool__(self) -> bool:
        return self != Names()

    def over(self, own: Names) -> Names:
        """Return what a use means: the names that it gives, and those of its resource for what it leaves out.

        Raises:
            ConfigurationError: a group of a stream that neither of them names.
        """
        if self.queue_name is not None or not self:
            return self or own
        stream = self.stream_name if self.stream_name is not None else own.stream_name
        if stream is None:
            names = f"names the queue {own.queue_name!r}" if own.queue_name is not None else "names no stream"
            raise ConfigurationError(f"group={self.group!r} needs a stream, and the resource {names}; give stream_name")
        return Names(stream_name=stream, group=self.group if self.group is not None else own.group)

    def place(self) -> Place:
        """Return the place of these names.

        Raises:
            ConfigurationError: they name none.
        """
        if self.queue_name is not None:
            return Place(self.queue_name)
        if self.stream_name is None:
            raise ConfigurationError(
                "the queue resource names no queue; set its queue_name, or its stream_name and group, or name one "
                'where it is used, as in get_queue("orders")'
            )
        return Place(self.stream_name, stream=True, group=self.group)

    @property
    def described(self) -> str:
        """Return in Markdown what the definition names; "" for nothing."""
        return self._in_words("`{}`")

    @property
    def in_words(self) -> str:
        """Return the same as plain text."""
        return self._in_words("{!r}")

    def _in_words(self, quote: str) -> str:
        if self.queue_name is not None:
            return f"the queue {quote.format(self.queue_name)}"
        group = "" if self.group is None else f"the group {quote.format(self.group)}"
        stream = "" if self.stream_name is None else f"the stream {quote.format(self.stream_name)}"
        return " of ".join(part for part in (group, stream) if part)


NO_NAMES = Names()


def _check(option: str, name: object) -> None:
    try:
        QueueKeys(name)  # type: ignore[arg-type]  # it checks the name
    except ConfigurationError as error:
        raise type(error)(f"{option}: {error}") from None
