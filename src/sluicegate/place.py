"""A place is what a caller names: a queue, a stream or a group of a stream. URLs name a Redis and a place on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["Place", "is_place_url"]

_SUFFIX = "+sluicegate"
_NAMES = ("queue", "stream", "group")


def is_place_url(url: str) -> bool:
    """Return whether a URL names a place on its Redis, by a scheme such as `redis+sluicegate`."""
    return url.partition(":")[0].endswith(_SUFFIX)


@dataclass(frozen=True, slots=True)
class Place:
    """A queue, a stream, or a group of a stream.

    Attributes:
        name: of the queue or the stream.
        stream: whether it is a stream.
        group: the name of the group, None for the stream itself.
    """

    name: str
    stream: bool = False
    group: str | None = None

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), *((("group", self.group),) if self.group is not None else ())):
            if not isinstance(name, str):
                raise OptionTypeError(f"{what} must be a str, not {type(name).__name__}")
            if not name.strip():
                raise ConfigurationError(f"{what} is blank; give it at least one visible character")
        if self.group is not None and not self.stream:
            raise ConfigurationError(
                f"group {self.group!r} needs a stream, and {self.name!r} is a queue; give stream={self.name!r}"
            )

    @classmethod
    def named(cls, queue: str | None = None, *, stream: str | None = None, group: str | None = None) -> Place:
        """Make the place that the parameters of an operator, sensor or option name.

        Args:
            queue: the name of a queue.
            stream: instead, the name of a stream.
            group: with a stream, the name of a group.

        Raises:
            ConfigurationError: not exactly one of queue and stream, or a group without a stream.
        """
        if (queue is None) == (stream is None):
            given = "both are" if queue is not None else "neither is"
            raise ConfigurationError(f"give exactly one of queue and stream; {given} given")
        if queue is not None:
            return cls(queue, group=group)
        assert stream is not None
        return cls(stream, stream=True, group=group)

    @classmethod
    def parse_url(cls, url: str) -> tuple[str, Place]:
        """Split a URL such as `redis+sluicegate://host:6379/0?stream=orders&group=billing`.

        The scheme is that of any URL of a Redis with `+sluicegate` behind it: `rediss+sluicegate`, `unix+sluicegate`,
        `redis+sentinel+sluicegate`, `redis+cluster+sluicegate`, `embedded+sluicegate`. A queue is `?queue=orders`.

        Returns:
            The URL of the Redis, and the place.

        Raises:
            ConfigurationError: another scheme, or not one queue or stream.
        """
        if not isinstance(url, str):
            raise OptionTypeError(f"url must be a str, not {type(url).__name__}")
        parts = urlsplit(url)
        if not parts.scheme.endswith(_SUFFIX):
            raise ConfigurationError(
                f"url scheme {parts.scheme!r} names no queue or stream; write for instance "
                "redis+sluicegate://host:6379/0?stream=orders&group=billing"
            )
        options = parse_qsl(parts.query, keep_blank_values=True)
        given = [option for option in options if option[0] in _NAMES]
        _refuse_repeats(given)
        kept = [option for option in options if option[0] not in _NAMES]
        names = dict(given)
        place = cls.named(names.get("queue"), stream=names.get("stream"), group=names.get("group"))
        scheme = parts.scheme.removesuffix(_SUFFIX)
        redis_url = _joined(scheme, parts, urlencode(kept, safe="/"))
        return redis_url, place

    def url_on(self, redis_url: str) -> str:
        """Return the URL that names this place on a Redis; `parse_url` reads it."""
        parts = urlsplit(redis_url)
        names = [("stream" if self.stream else "queue", self.name)]
        if self.group is not None:
            names.append(("group", self.group))
        query = "&".join(part for part in (parts.query, urlencode(names)) if part)
        return _joined(parts.scheme + _SUFFIX, parts, query)

    def __str__(self) -> str:
        if not self.stream:
            return f"queue {self.name!r}"
        return f"stream {self.name!r}" if self.group is None else f"group {self.group!r} of stream {self.name!r}"


def _refuse_repeats(given: Sequence[tuple[str, str]]) -> None:
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"the URL names {name} more than once; give it once")


def _joined(scheme: str, parts: SplitResult, query: str) -> str:
    """Join a URL, with both slashes where there is no host: `urlunsplit` leaves them out."""
    return f"{scheme}://{parts.netloc}{parts.path}{'?' if query else ''}{query}"
