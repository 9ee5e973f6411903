"""What the tests of moves share: a gateway per RESP protocol, and gateways that fail or repeat at a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sluicegate import RedisGateway
from sluicegate.core.call import Call
from sluicegate.migrating import calls
from tests.support.servers import RedisServer


class StoppedError(Exception):
    """The process ended here."""


class StoppingGateway(RedisGateway):
    """Ends the run at one call: before it is sent, or after it was executed and before its reply is used."""

    def __init__(self, client: redis.Redis, stop_at: int, *, executed: bool) -> None:
        super().__init__(redis_client=client)
        self.left = stop_at
        self.executed = executed

    def execute(self, call: Call[Any], **options: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.executed:
            raise StoppedError
        result = super().execute(call, **options)
        if self.left == 0:
            raise StoppedError
        return result

    def execute_many(self, many: Any, **options: Any) -> list[Any]:
        return [self.execute(call) for call in many]


class RepeatingGateway(RedisGateway):
    """Executes every call twice, as a retry after a lost reply does, and answers with the second reply."""

    def execute(self, call: Call[Any], **options: Any) -> Any:
        super().execute(call, **options)
        return super().execute(call, **options)


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def gateway(request: pytest.FixtureRequest, server: RedisServer, client: redis.Redis) -> Iterator[RedisGateway]:
    """Yield a gateway to the test's server that speaks one of the protocols."""
    with server.client(protocol=request.param) as own:
        yield RedisGateway(redis_client=own)


@pytest.fixture
def stopping(client: redis.Redis) -> Callable[..., StoppingGateway]:
    """Return a function that makes a gateway which ends a run at one of its calls."""
    return lambda stop_at, executed: StoppingGateway(client, stop_at, executed=executed)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages of three messages, so that a few messages are several pages."""
    take, read = calls.take_call, calls.read_stream_call
    monkeypatch.setattr(calls, "take_call", lambda key, **options: take(key, count=3, **options))
    monkeypatch.setattr(calls, "read_stream_call", lambda key, after: read(key, after, count=3))
