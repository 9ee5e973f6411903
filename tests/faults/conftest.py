"""Gateways of both flavours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff

from sluicegate.asyncio.gateway import RedisGateway as AsyncRedisGateway
from sluicegate.gateway import RedisGateway
from tests.support.flavours import Blocking, Loop

MakeGateway = Callable[..., Any]


@pytest.fixture(params=[False, True], ids=["sync", "asyncio"])
def make_gateway(request: pytest.FixtureRequest) -> Iterator[MakeGateway]:
    """Yield a function that makes gateways for a port: synchronous interface, no retries by redis-py."""
    made: list[Any] = []
    loop = Loop() if request.param else None

    def make(
        port: int,
        *,
        client_retries: int | None = None,
        query: str = "",
        database: int = 0,
        url: str | None = None,
        **options: Any,
    ) -> Any:
        place: dict[str, Any] = {"url": url or f"redis://127.0.0.1:{port}/{database}{query}"}
        package = redis.asyncio if loop else redis
        if client_retries is not None:
            retry = package.retry.Retry(NoBackoff(), client_retries)
            place = {"redis_client": package.Redis(port=port, retry=retry)}
        options = {"retry_budget_seconds": 60, **options}
        if loop is None:
            made.append(RedisGateway(**place, **options))
        else:
            made.append(Blocking(loop.run(lambda: AsyncRedisGateway(**place, **options)), loop))
        return made[-1]

    yield make
    for gateway in made:
        (gateway.aclose if loop else gateway.close)()
    if loop:
        loop.close()
