"""The snippet of the documentation moves a queue."""

from __future__ import annotations

import pytest
import redis

from tests.migrating.old_queues import OldMessageQueue
from tests.support.servers import RedisServer
from tests.support.snippets import snippet


def test_the_snippet_moves_a_queue(
    client: redis.Redis, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    OldMessageQueue(client).publish("a", "b")
    code = snippet("move-a-message-queue").replace("redis://localhost:6379/0", server.url)
    exec(code, {})  # noqa: S102
    assert capsys.readouterr().out == "pending orders::pending 2 pending\n2 moved, 0 left\n"
