"""A connection that another thread or task closes while it is in use fails as a lost connection does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from redis._parsers import _RESP2Parser, _RESP3Parser
from redis.connection import DefaultParser
from redis.exceptions import RedisError

from sluicegate._redis import error_mapping, pools
from sluicegate._redis.asyncio import pools as async_pools
from tests.support.settings import UNIX_SPEAKS_RESP3

PING = b"*1\r\n$4\r\nPING\r\n"


def closing(connection: Any) -> Callable[..., None]:
    """Return a health check during which another thread closes the connection."""

    def check_health() -> None:
        connection.disconnect()

    return check_health


@pytest.fixture(params=[_RESP2Parser, _RESP3Parser, DefaultParser], ids=["resp2", "resp3", "default"])
def connection(client: redis.Redis, request: pytest.FixtureRequest) -> Any:
    """Return a connection of a pool of its own, with one of redis-py's parsers."""
    options = {**client.connection_pool.connection_kwargs, "parser_class": request.param}
    if request.param is _RESP3Parser and UNIX_SPEAKS_RESP3:
        options["protocol"] = 3
    pool = redis.ConnectionPool(connection_class=client.connection_pool.connection_class, **options)
    return pools.borrow(pool)


def test_closed_before_the_reply_is_read(connection: Any) -> None:
    pools.send(connection, [PING])
    connection.disconnect()

    with pytest.raises(redis.ConnectionError, match="closed"):
        pools.read(connection)


def test_closed_before_the_command_is_written(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "check_health", closing(connection))

    with pytest.raises(redis.ConnectionError, match="closed"):
        pools.send(connection, [PING])


def test_another_error_of_the_same_kind_is_not_hidden(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise AttributeError("a fault of ours", name="x", obj=connection)

    monkeypatch.setattr(connection, "read_response", broken)

    with pytest.raises(AttributeError, match="a fault of ours"):
        pools.read(connection)


def test_closed_before_the_reply_is_read_by_a_task(client: redis.Redis) -> None:
    async def use() -> BaseException | None:
        options = client.connection_pool.connection_kwargs
        kind = getattr(redis.asyncio, client.connection_pool.connection_class.__name__)
        pool = redis.asyncio.ConnectionPool(connection_class=kind, **options)
        connection = await async_pools.borrow(pool)
        await async_pools.send(connection, [PING])
        await connection.disconnect(nowait=True)
        try:
            await async_pools.read(connection)
        except RedisError as error:
            return error
        return None

    error = asyncio.run(use())

    assert error is not None
    assert error_mapping.is_transient(error), repr(error)
