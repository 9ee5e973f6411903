"""Redis at `maxmemory`: a publish is refused whole, and calls that drain or extend still work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import LeaseState, RedisMessageQueue, Verdict
from sluicegate.core import scripts
from sluicegate.errors import RedisMemoryError
from tests.faults.test_repeats import CASES, Prepare
from tests.faults.write_cases import stage_more
from tests.support import state
from tests.support.core_administration import Admin
from tests.support.core_calls import Core

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def full(make_queue: MakeQueue, client: redis.Redis) -> RedisMessageQueue:
    """Return a queue with twelve messages (two leased and expired, one due) on a server without free memory."""
    queue = make_queue(get_deduplication_key="id")
    queue.publish_many({"id": number} for number in range(12))
    queue.claim(2)
    queue.claim(1).nack(delay_seconds=1000)
    state.expire(client, "orders")
    state.fall_due(client, "orders")
    client.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.RedisError):
        client.set("other", "x")
    return queue


@pytest.mark.parametrize("ids", [[100], [0, 100], [0, 1]], ids=["fresh", "with a duplicate", "duplicates only"])
def test_a_publish_is_refused_whole(full: RedisMessageQueue, client: redis.Redis, ids: list[int]) -> None:
    before = state.dumps(client)
    with pytest.raises(RedisMemoryError, match="maxmemory"):
        full.publish_many({"id": number} for number in ids)
    assert state.dumps(client) == before


def test_a_publish_without_keys_is_refused_whole(
    make_queue: MakeQueue, full: RedisMessageQueue, client: redis.Redis
) -> None:
    before = state.dumps(client)
    with pytest.raises(RedisMemoryError):
        make_queue("other").publish_many(["x"] * 3)
    assert state.dumps(client) == before


def test_claims_bring_back_what_expired_and_is_due(full: RedisMessageQueue) -> None:
    assert [message.json()["id"] for message in full.claim(1).messages] == [0]
    assert [message.json()["id"] for message in full.claim(1).messages] == [1]
    assert [message.json()["id"] for message in full.claim(1).messages] == [2]
    assert len(full.claim(100)) == 9
    assert full.claim(1, lease_id="run-1", remember_empty=True).state is LeaseState.EMPTY


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "slots"])
def test_settling_goes_on(full: RedisMessageQueue, verb: str, whole: bool) -> None:
    for _ in range(3):
        full.claim(1).ack()
    lease = full.claim(100)
    lease.settle(Verdict(verb, None if whole else lease.messages[2:5]))  # type: ignore[arg-type]
    counts = lease.counts
    assert counts.acked + counts.returned + counts.buried == (9 if whole else 3)


def test_a_delayed_nack_goes_on(full: RedisMessageQueue) -> None:
    full.claim(1).nack(delay_seconds=5)
    assert full.depth().delayed == 1


def test_heartbeats_and_takeovers_go_on(full: RedisMessageQueue, client: redis.Redis) -> None:
    lease = full.claim(1, lease_id="run-1")
    before = client.zscore(lease._session.keys.leases, "run-1")
    lease.extend()
    lease.extend(600)
    assert client.zscore(lease._session.keys.leases, "run-1") >= before + 300_000
    heir = full.claim(1, lease_id="run-1", take_over_after_seconds=0)
    assert heir.state is LeaseState.OPEN
    heir.ack()


def test_looking_goes_on(full: RedisMessageQueue) -> None:
    assert full.depth().ready == 12
    assert len(full.peek()) == 9


def test_a_full_redis_is_drained_to_the_end(full: RedisMessageQueue, client: redis.Redis) -> None:
    drained = 0
    while lease := full.claim(5):
        lease.ack()
        drained += lease.counts.acked
    assert drained == 12
    client.config_set("maxmemory", "0")
    assert full.publish({"id": 100}) is True


@pytest.mark.parametrize("name", sorted(set(scripts.NAMES) - {"publish", "publish_to_stream", "stage_rows"}))
def test_no_script_but_those_that_add_messages_is_refused_for_memory(bare_client: redis.Redis, name: str) -> None:
    prepared = [prepare for prepare in CASES if script_of(prepare, bare_client) == name]
    assert prepared, f"{name}.lua is in no case"
    for prepare in prepared:
        bare_client.config_set("maxmemory", "0")
        bare_client.flushall()
        core = Core(bare_client)
        call = prepare(core)
        bare_client.config_set("maxmemory", "1")
        with pytest.raises(redis.exceptions.RedisError, match="maxmemory"):
            bare_client.set("other", "x")
        core.do(call)


def test_staging_is_refused_whole(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    call = stage_more(core)
    bare_client.config_set("maxmemory", "1")
    before = state.dumps(bare_client)
    with pytest.raises(RedisMemoryError, match="maxmemory"):
        core.do(call)
    assert state.dumps(bare_client) == before
    bare_client.config_set("maxmemory", "0")
    assert core.do(call) == 4


def script_of(prepare: Prepare, client: redis.Redis) -> str:
    client.config_set("maxmemory", "0")
    client.flushall()
    return prepare(Core(client)).script.name


def test_administration_goes_on(full: RedisMessageQueue, client: redis.Redis) -> None:
    full.claim(1).ack()
    full.claim(1).bury()
    admin = Admin(client)
    assert admin.pause()
    assert admin.resume()
    assert admin.redrive().redriven == 1
    assert admin.forget("11")
    ids = [message.id for message in full.peek(3)]
    assert admin.cancel(ids) == ids
    assert admin.purge("pending") == 7
