"""What the versions of redis-message-queue store moves as their own consumers would have received it."""

from __future__ import annotations

import json
import subprocess

import pytest
import redis

from benchmarks.peers.environments import PEERS, Peer, environment, interpreter
from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.migrating import MessageQueueSource, Migration
from tests.support.servers import RedisServer

pytestmark = pytest.mark.full
PROGRAM = """
import sys, redis
from redis_message_queue import RedisMessageQueue
client = redis.Redis.from_url(sys.argv[1])
options = {"get_deduplication_key": lambda message: str(message["id"]), "visibility_timeout_seconds": 1}
if sys.argv[2].startswith("8"):
    options |= {"deduplication": True, "enable_completed_queue": True, "enable_failed_queue": True}
else:
    options |= {"max_completed_length": 100, "max_failed_length": 100}
queue = RedisMessageQueue("orders", client=client, **options)
for number in range(6):
    queue.publish({"id": number, "text": "ä"})
with queue.process_message():
    pass
try:
    with queue.process_message():
        raise ValueError
except ValueError:
    pass
with queue.process_message():
    import os
    os._exit(0)
"""


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.version)
def test_what_a_version_stores_moves(client: redis.Redis, server: RedisServer, peer: Peer) -> None:
    python = interpreter()
    assert python is not None
    subprocess.run([environment(peer, python), "-c", PROGRAM, server.url, peer.version], check=True)
    gateway = RedisGateway(redis_client=client)

    report = Migration(MessageQueueSource("orders"), "orders", source_gateway=gateway, in_flight="return").run()

    assert {part.part: part.moved for part in report.parts} == {
        "deduplication keys": 6,
        "in flight": 1,
        "pending": 3,
        "failed": 1,
        "completed": 1,
    }
    assert sum(part.raw for part in report.parts) == 0
    queue = RedisMessageQueue("orders", client=client, get_deduplication_key="id")
    (returned,), pending = queue.peek(state="returned"), queue.peek()
    assert (returned.json(), returned.delivery_count) == ({"id": 2, "text": "ä"}, 1)
    assert [message.json()["id"] for message in pending] == [3, 4, 5]
    assert json.loads(queue.peek(state="dead")[0].value.rpartition(b"\x1f")[2])["id"] == 1
    assert queue.peek(state="completed")[0].message.json()["id"] == 0
    assert queue.publish({"id": 5}) is False
    assert [key for key in client.keys("orders*") if client.type(key) == b"list"] == []
