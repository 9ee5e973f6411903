"""Faults that other queues had in public: for each one that concerns the core, tests of the right behaviour here.

The rows are named `repository#number`. What concerns orchestrators is proved in their rooms.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.support import markers
from tests.support.core_calls import Core, verdict
from tests.support.servers import RedisServer

ROOT = Path(__file__).parents[2]

# repository#number -> file of tests: names of the tests
PROVED: dict[str, dict[str, list[str]]] = {
    # A popped message whose reply nobody read was gone.
    "celery/celery#4354": {
        "tests/faults/test_outage.py": ["test_a_lost_reply_does_not_lose_a_claim"],
        "tests/faults/test_protocol.py": ["test_no_answer_is_ever_wrong"],
    },
    # In a cluster nothing brought messages of a dead consumer back.
    "taskiq-python/taskiq-redis#130": {
        "tests/topologies/test_core.py": ["test_an_expired_lease_is_delivered_again_and_refused_to_its_holder"],
    },
    # What was acked came again after a failover.
    "redis/redis#5433": {
        "tests/topologies/test_failover.py": ["test_what_was_confirmed_survives_the_primary"],
    },
    # A maintenance lock without an expiry outlived its holder.
    "taskiq-python/taskiq-redis#131": {
        "tests/faults/test_repeats.py": ["test_maintenance_in_steps_moves_each_message_once"],
        "tests/faults/test_protocol.py": ["test_no_answer_is_ever_wrong"],
        "tests/conformance/test_machine.py": ["test_any_sequence_of_operations"],
    },
    # A consumer's clock decided what was due.
    "apache/dolphinscheduler#12170": {
        "tests/faults/test_public_faults.py": ["test_no_script_is_told_what_time_it_is"],
    },
    # A client that decodes broke on binary payloads.
    "rq/rq#1188": {
        "tests/faults/test_public_faults.py": ["test_binary_payloads_through_a_client_that_decodes"],
    },
    # Maintenance unpacked more than Lua can.
    "Bogdanp/dramatiq#258": {"tests/faults/test_repeats.py": ["test_thousands_in_one_step"]},
    # The keys of one script hashed to several slots.
    "taskforcesh/bullmq#459": {"tests/unit/test_keys.py": ["test_all_keys_of_a_queue_have_its_hash_tag"]},
    # A replica's READONLY ended the worker.
    "celery/celery#7946": {
        "tests/faults/test_outage.py": ["test_a_server_that_only_reads_is_an_outage"],
        "tests/faults/test_gateways.py": ["test_after_readonly_the_primary_is_looked_up_again"],
    },
    # After a reconnect nothing was consumed any more.
    "celery/celery#10205": {
        "tests/faults/test_outage.py": ["test_an_outage_is_ridden_out", "test_a_sleeper_rides_out_an_outage"],
    },
    # A publish whose reply was lost was published twice.
    "redis/redis-py#3554": {
        "tests/faults/test_outage.py": ["test_a_lost_reply_never_doubles_a_publish"],
        "tests/faults/test_repeats.py": ["test_executed_twice", "test_a_publish_executed_late_is_found_done"],
    },
    # A forked child broke the connection of its parent.
    "redis/redis-py#863": {"tests/faults/test_fork.py": ["test_the_connections_of_the_parent_stay_untouched"]},
    # A key outlived its message and refused all later ones.
    "taskforcesh/bullmq#4311": {
        "tests/conformance/test_machine.py": ["test_any_sequence_of_operations"],
        "tests/conformance/test_until_acked_settle.py": ["test_a_marker_ends_with_its_message"],
        "tests/faults/test_stopped_scripts.py": ["test_a_script_that_is_stopped_loses_nothing"],
        "tests/faults/test_public_faults.py": ["test_every_deduplication_key_ends_by_itself"],
    },
}
NAMED = [(row, file, name) for row, files in PROVED.items() for file, names in files.items() for name in names]


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


@pytest.mark.parametrize(("row", "file", "name"), NAMED, ids=lambda value: str(value).rpartition("/")[2])
def test_every_row_has_its_tests(row: str, file: str, name: str) -> None:
    defined = {node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}
    assert name in defined, f"{row} is proved by {file}::{name}, which is not there"


def test_no_script_is_told_what_time_it_is(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose clock is an hour off sends the same calls: only durations are sent."""
    sent = []
    for hours in (0, 1, -1):
        monkeypatch.setattr(time, "time", lambda: 1_700_000_000 + hours * 3600)  # noqa: B023
        sent.append(
            [
                core.publish("b", "a", delay_seconds=60).args,
                core.claim("l", "n").args,
                core.settle("l", b"n:1-1", verdict("nack", "1", delay_seconds=60)).args,
                core.extend("l", b"n:1-1").args,
                core.reap("l").args,
                core.promote().args,
            ]
        )
    assert sent[0] == sent[1] == sent[2]
    core.do(core.publish("b", "a", delay_seconds=60))
    (entry,) = core.client.zrange(core.keys.delayed, 0, -1)
    seconds, microseconds = core.client.time()
    due = core.client.zscore(core.keys.delayed, entry)
    assert due == pytest.approx(seconds * 1000 + microseconds / 1000 + 60_000, abs=5000)


@pytest.mark.parametrize("payload", [b"\x1f\x8b\xff\x00\xfe", bytes(range(256)), "zażółć".encode("utf-16")])
def test_binary_payloads_through_a_client_that_decodes(
    server: RedisServer, client: redis.Redis, payload: bytes
) -> None:
    with server.client(decode_responses=True) as decoding:
        queue = RedisMessageQueue("orders", client=decoding)
        assert queue.publish(payload) is True
        with queue.claim() as lease:
            assert [message.payload for message in lease] == [payload]
        queue.close()


@pytest.mark.parametrize("policy", ["window", "until_acked"])
def test_every_deduplication_key_ends_by_itself(client: redis.Redis, policy: Any) -> None:
    """Even when its message is deleted from outside, where no script sees it."""
    queue = RedisMessageQueue(
        "orders",
        client=client,
        get_deduplication_key="id",
        deduplication_policy=policy,
        deduplication_window_seconds=60,
    )
    queue.publish_many({"id": number} for number in range(3))
    queue.publish({"id": 3}, delay_seconds=1000)
    client.delete(queue.session.keys.pending)
    held = markers.held(client, queue.session.keys)
    lives = [markers.left_ms(client, queue.session.keys, key) for key in held]
    longest = 60_000 if policy == "window" else (7 * 86400 + 1000) * 1000 + 1  # its millisecond has begun
    assert len(lives) == 4
    assert all(0 < life <= longest for life in lives)
    queue.close()
