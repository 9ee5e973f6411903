"""This Redis client for `embedded:///folder` starts or joins the folder's server when it connects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis

from sluicegate.embedded import safety
from sluicegate.embedded.server import Fsync, check_options, ensure_server
from sluicegate.errors import ConfigurationError

__all__ = ["EmbeddedConnection", "EmbeddedOptions", "ServerLocator", "connect", "parse_url"]

SCHEME = "embedded"
_HOW_TO_WRITE = "write it with three slashes and an absolute path, such as embedded:///path/to/orders"
# These options name another server, or connect in the constructor.
_REFUSED_OPTIONS = ("connection_pool", "host", "port", "single_connection_client", "ssl", "unix_socket_path")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """These options give the data folder and how the server is started, see `ensure_server`."""

    folder: Path
    fsync: Fsync = "everysec"
    idle_seconds: float = 60.0


def parse_url(url: str) -> EmbeddedOptions:
    """Parse `embedded:///absolute/folder?fsync=always&idle_seconds=30` without reading a file.

    The folder is percent-decoded, so write `?`, `#` and `%` in its name as %3F, %23 and %25. Spaces and letters of any
    script need no encoding.

    Raises:
        ConfigurationError: the scheme is another one, the path is not absolute, or an option is unknown or invalid.
    """
    parts = urlsplit(url)
    if parts.scheme != SCHEME:
        raise ConfigurationError(f"{_shown(url)} is no embedded URL; {_HOW_TO_WRITE}.")
    if parts.fragment:
        raise ConfigurationError(f"{_shown(url)}: write a # in the folder's name as %23.")
    folder = unquote(parts.path)
    if parts.netloc or not folder.startswith("/") or not folder.strip("/") or "\0" in folder:
        raise ConfigurationError(f"{_shown(url)} names no absolute folder; {_HOW_TO_WRITE}.")
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise ConfigurationError(f"{_shown(url)}: the option {name!r} is given twice.")
        options[name] = _option(url, name, value)
    return _checked(EmbeddedOptions(_normal(folder), **options))


def _shown(url: str) -> str:
    """Return a URL for an error text, without any part that may contain a password."""
    scheme, slashes, rest = url.partition("?")[0].partition("//")
    place, slash, path = rest.partition("/")
    return repr(f"{scheme}{slashes}{place.rpartition('@')[2]}{slash}{path}")


def _option(url: str, name: str, value: str) -> str | float:
    if name == "fsync":
        return value
    if name == "idle_seconds":
        try:
            return float(value)
        except ValueError:
            raise ConfigurationError(f"{_shown(url)}: idle_seconds={value!r} is not a number of seconds.") from None
    raise ConfigurationError(f"{_shown(url)}: unknown option {name!r}; there are fsync and idle_seconds.")


def _checked(options: EmbeddedOptions) -> EmbeddedOptions:
    check_options(options.fsync, options.idle_seconds)
    return options


def _normal(folder: str) -> Path:
    # POSIX keeps two leading slashes apart from one.
    return Path(os.path.abspath("/" + folder.lstrip("/") if folder.startswith("/") else folder))


class ServerLocator:
    """A locator gives the connections of a client the path of the server's socket.

    It has two plain methods, so an async client can call them in a thread. Every server has its own socket path, so a
    path that this locator has joined once identifies a server that runs with this locator's options.
    """

    def __init__(self, options: EmbeddedOptions) -> None:
        self.options = options
        self._joined: str | None = None

    def socket_path(self) -> str:
        """Return the socket of the server joined last, or join one; blocks until it answers."""
        joined = self._joined
        # After the server has ended, another user may own its directory.
        if joined is not None and safety.is_private(Path(joined).parent):
            return joined
        return self.rejoin()

    def rejoin(self) -> str:
        """Join the folder's server, or start it; return its socket."""
        options = self.options
        server = ensure_server(options.folder, fsync=options.fsync, idle_seconds=options.idle_seconds)
        self._joined = str(server.socket_path)
        return self._joined


class EmbeddedConnection(redis.UnixDomainSocketConnection):
    """This connection starts or joins the server if none answers on its socket."""

    def __init__(self, *, locator: ServerLocator, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._locator = locator

    def _connect(self) -> Any:
        self.path = self._locator.socket_path()
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        except (FileNotFoundError, ConnectionRefusedError):
            self.path = self._locator.rejoin()
            return super()._connect()  # type: ignore[no-untyped-call]


def connect(url_or_folder: str | Path, **redis_options: Any) -> redis.Redis:
    """Return a client of the folder's server; nothing is read, made or started before its first command.

    A command that finds no server, because it stopped when idle or was killed, starts one. A command in progress while
    the server is killed raises or is repeated, depending on redis-py's retry option.

    Args:
        url_or_folder: `embedded:///folder?…` (see `parse_url`), or the folder.
        **redis_options: options of `redis.Redis`, such as `db`, `decode_responses`, `retry`.

    Raises:
        ConfigurationError: the URL is invalid, or an option names another server.
    """
    for name in _REFUSED_OPTIONS:
        if name in redis_options:
            raise ConfigurationError(f"{name} does not go with an embedded server; leave it out.")
    if isinstance(url_or_folder, str) and url_or_folder.startswith(f"{SCHEME}:"):
        options = parse_url(url_or_folder)
    elif os.fspath(url_or_folder):
        options = EmbeddedOptions(_normal(os.fspath(url_or_folder)))
    else:
        raise ConfigurationError(f"the folder is empty; name one, or {_HOW_TO_WRITE}.")
    # redis-py needs a socket path; its reprs show the folder until the locator knows the path.
    client = redis.Redis(unix_socket_path=str(options.folder), **redis_options)
    pool = client.connection_pool
    pool.connection_class = EmbeddedConnection
    pool.connection_kwargs["locator"] = ServerLocator(options)
    return client
