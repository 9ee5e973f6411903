"""The URL of a resource: short timeouts for a look, and no password in what Dagster shows."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode, urlsplit

import dagster as dg

from sluicegate._redis.connection import Address
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place, is_place_url

__all__ = ["has_password", "holds", "impatient_url", "is_variable", "refuse_plain_password", "split_url"]

_LOOK_SECONDS = 4.0
_VARIABLES = (dg.EnvVar, type(dg.EnvVar.int("ANY")))  # Dagster has no public name for the second


def split_url(url: str) -> tuple[str, Place | None]:
    """Return the URL of the Redis, and what a URL such as `redis+sluicegate://…?stream=orders&group=billing` names.

    Raises:
        ConfigurationError: it names both a queue and a stream, or neither.
    """
    return Place.parse_url(url) if isinstance(url, str) and is_place_url(url) else (url, None)


def has_password(url: str) -> bool:
    """Return whether a URL holds a password, and not only the name of its variable."""
    return Address.parse(split_url(url)[0]).password is not None


def impatient_url(url: str) -> str:
    """Return the URL with short timeouts, unless it has its own."""
    parts = urlsplit(url)
    if parts.scheme == "embedded":  # a local socket; it starts within half a second or says why not
        return url
    given = parse_qs(parts.query)
    missing = {name: _LOOK_SECONDS for name in ("socket_connect_timeout", "socket_timeout") if name not in given}
    if not missing:
        return url
    return f"{url}{'&' if parts.query else '?'}{urlencode(missing)}"


def refuse_plain_password(url: object, owner: str) -> None:
    """Refuse a URL that is not read from a variable and holds a password.

    Args:
        url: as it was given to the resource.
        owner: what it belongs to, for the error.

    Raises:
        ConfigurationError: it does, or it is no URL of a Redis.
    """
    if isinstance(url, str) and not is_variable(url) and has_password(url):
        raise ConfigurationError(
            f"the url of {owner} carries a password as plain text, which the UI would show; "
            'write url=dg.EnvVar("REDIS_URL"), or redis://user@host:6379/0?password_env=NAME'
        )


def is_variable(value: object) -> bool:
    """Return whether a value stands for a variable that is read when a run or a tick begins."""
    return isinstance(value, _VARIABLES)


def holds(config: object, text: str) -> bool:
    """Return whether a text is among the values of a run config."""
    if isinstance(config, Mapping):
        return any(holds(value, text) for value in config.values())
    return config == text
