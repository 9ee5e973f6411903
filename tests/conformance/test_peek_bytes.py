"""Tests of how many bytes one call of a peek shows."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.transitions.peek import MAX_BYTES

SIZE = MAX_BYTES // 4
STATES = ("returned", "delayed", "dead")


def moved_to(state: str, queue: RedisMessageQueue) -> None:
    queue.publish_many([b"%0*d" % (SIZE, number) for number in range(10)])
    lease = queue.claim(10)
    if state == "dead":
        lease.bury()
    else:
        lease.nack(delay_seconds=60 if state == "delayed" else 0)


@pytest.mark.parametrize("state", STATES)
def test_a_peek_takes_a_call_per_megabyte(queue: Any, client: redis.Redis, state: Any) -> None:
    moved_to(state, queue)
    client.config_resetstat()

    shown = queue.peek(10, state=state)

    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 3, "of four, four and two messages"
    messages = [one.message if state == "dead" else one for one in shown]
    assert sorted(int(message.payload[-4:]) for message in messages) == [*range(10)]
    assert [one.id for one in messages[3:7]] == [
        (one.message if state == "dead" else one).id for one in queue.peek(4, state=state, offset=3)
    ]


def test_a_peek_of_small_messages_takes_one_call(queue: Any, client: redis.Redis) -> None:
    queue.publish_many(str(number) for number in range(1500))
    queue.claim(2000).nack(delay_seconds=60)
    client.config_resetstat()

    assert len(queue.peek(1400, state="delayed", offset=50)) == 1400
    assert len(queue.peek(2000, state="delayed")) == 1500
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
