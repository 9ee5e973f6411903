"""This asyncio client for `embedded:///folder` starts or joins the folder's server when it connects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis.asyncio

from sluicegate.embedded.client import ServerLocator, parse_url
from sluicegate.errors import EmbeddedServerError

__all__ = ["AsyncEmbeddedConnection", "connect"]


class AsyncEmbeddedConnection(redis.asyncio.UnixDomainSocketConnection):
    """This connection starts or joins the server if none answers on its socket."""

    def __init__(self, *, locator: ServerLocator, **options: Any) -> None:
        super().__init__(**options)
        self._locator = locator

    async def connect(self) -> None:
        with _named_errors():
            await super().connect()  # type: ignore[no-untyped-call]

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        with _named_errors():
            await super().connect_check_health(*args, **options)

    async def _connect(self) -> None:
        # Starting a server takes a while, which would block the event loop.
        self.path = await asyncio.to_thread(self._locator.socket_path)
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except (FileNotFoundError, ConnectionRefusedError):
            self.path = await asyncio.to_thread(self._locator.rejoin)
            await super()._connect()  # type: ignore[no-untyped-call]


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise our own error instead of the ConnectionError into which redis-py turns it, since callers retry that."""
    try:
        yield
    except redis.ConnectionError as error:
        if isinstance(error.__cause__, EmbeddedServerError):
            raise error.__cause__ from None
        raise


def connect(url: str, **redis_options: Any) -> redis.asyncio.Redis:
    """Return an asyncio client of the folder's server; nothing is read, made or started before its first command.

    Args:
        url: `embedded:///folder?…`, see `sluicegate.embedded.parse_url`.
        **redis_options: options of `redis.asyncio.Redis`, such as `decode_responses`, `retry`.

    Raises:
        ConfigurationError: the URL is invalid.
    """
    options = parse_url(url)
    client = redis.asyncio.Redis(unix_socket_path=str(options.folder), **redis_options)
    pool = client.connection_pool
    pool.connection_class = AsyncEmbeddedConnection
    pool.connection_kwargs["locator"] = ServerLocator(options)
    return client
