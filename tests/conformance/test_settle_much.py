"""Settles of thousands of messages with thousands of verdicts: linear in the script, and in calls of bounded length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue, Verdict
from sluicegate._lease_operations import settle
from sluicegate.core.ledger import VerdictGroup
from sluicegate.core.transitions.settle import Settled, SettleRequest, settle_operation
from sluicegate.errors import RedisUnavailableError
from tests.support import state
from tests.support.core_calls import Core, verdict

MakeQueue = Callable[..., RedisMessageQueue]
MUCH = 4000


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def leased(core: Core, count: int) -> bytes:
    for batch in range(0, count, 1000):
        core.do(core.publish(f"b{batch}", *(str(number) for number in range(batch, min(batch + 1000, count)))))
    return core.opened("l", "n", count)[0]


def cpu_seconds(client: redis.Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def _acks_after_nacks() -> list[VerdictGroup]:
    return [verdict("ack", str(slot)) for slot in range(2, MUCH + 1, 2)]


def _alternating() -> list[VerdictGroup]:
    return [verdict("nack" if slot % 4 else "ack", str(slot)) for slot in range(2, MUCH + 1, 2)]


def _all_different() -> list[VerdictGroup]:
    return [
        verdict("nack", str(slot), delay_seconds=60 + slot, why=b"\x1fE\x1f%d" % slot) for slot in range(2, MUCH + 1, 2)
    ]


def _gone_already() -> list[VerdictGroup]:
    return [verdict("nack", str(slot)) for slot in range(1, MUCH + 1)]


@pytest.mark.parametrize("make", [_acks_after_nacks, _alternating, _all_different, _gone_already])
def test_a_group_per_message_costs_the_script_no_more_than_its_messages(
    core: Core, make: Callable[[], list[VerdictGroup]]
) -> None:
    """Milliseconds, where looking at all that is gone for each group took seconds of the server's own time."""
    token = leased(core, MUCH)
    core.do(core.settle("l", token, verdict("nack", ",".join(str(slot) for slot in range(1, MUCH + 1, 2)))))
    call = core.settle("l", token, *make())
    before = cpu_seconds(core.client)
    assert core.do(call).lost == []
    assert cpu_seconds(core.client) - before < 0.6
    assert core.do(core.depth()).in_flight == 0


def test_a_verdict_each_is_settled_like_one_for_all(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many([number] for number in range(2500))
    lease = queue.claim(2500)
    client.config_resetstat()
    lease.ack(*lease.messages[::2])
    calls, blocks = (1, 0) if client.exists("sluicegate:{orders}:stream") else (3, 10)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == calls, "two open a thousand messages each"
    assert client.info("commandstats")["cmdstat_hdel"]["calls"] == 2 + blocks, "a thousand at once, or a block"
    lease.nack()
    assert (lease.counts.acked, lease.counts.returned) == (1250, 1250)


def test_thousands_of_different_verdicts_go_in_calls_of_a_thousand(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(enable_failed_queue=True, max_failed_length=None)
    queue.publish_many([number] for number in range(2500))
    lease = queue.claim(2500)
    client.config_resetstat()
    lease.settle(
        *(
            Verdict("nack", message, delay_seconds=60 + message.slot, error=f"error {message.slot}")
            if message.slot % 5
            else Verdict("ack", message)
            for message in lease.messages
        )
    )
    # Two that settle, one of them as EVAL on a fresh server, and two that open a thousand messages of blocks each.
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 5
    assert (lease.counts.acked, lease.counts.returned, queue.depth().in_flight) == (500, 2000, 0)
    assert [message.json()[0] + 1 for message in queue.peek(2500, state="delayed")] == [
        slot for slot in range(1, 2501) if slot % 5
    ]
    assert sorted(int(attempt.error.split()[1]) for attempt in queue.peek(2500, state="failed")) == [
        slot for slot in range(1, 2501) if slot % 5
    ]


def settling(core: Core, token: bytes, *groups: VerdictGroup) -> Any:
    request = SettleRequest(b"l", token, 3600, True, groups)
    return settle_operation(
        core.keys, core.rules, request, clock=lambda: 0.0, confirmed_at=0, lease_seconds=60, lease_id="l"
    )


def test_a_crash_between_the_calls_leaves_every_ack_to_whoever_takes_over(core: Core) -> None:
    """An output written per lease from the acked messages is written again from all of them."""
    token = leased(core, 2500)
    core.do(next(settling(core, token, verdict("ack", "1-600"), verdict("nack", "601-2500"))))
    heir, reply = core.opened("l", "n2", takeover=token)
    assert set(range(1, 601)) <= set(reply.slots)
    assert len(reply.slots) == 1500
    assert core.do(core.settle("l", heir, verdict("ack", "1-600"), verdict("nack", "1601-2500"))).lost == []


def test_a_lease_lost_between_the_calls_names_what_came_too_late(core: Core) -> None:
    token = leased(core, 2500)
    operation = settling(core, token, verdict("nack", "1-2400"), verdict("ack", "2401-2500"))
    first = core.do(next(operation))
    state.expire(core.client, "orders")
    core.do(core.reap("l", 10_000))
    second = core.do(operation.send(first))
    third = core.do(operation.send(second))
    with pytest.raises(StopIteration) as ended:
        operation.send(third)
    settled: Settled = ended.value.value
    assert settled.lost == [*range(1001, 2501)]


@pytest.mark.parametrize("executed", [True, False], ids=["reply lost", "never executed"])
def test_a_settle_whose_second_call_failed_is_completed_by_its_repeat(
    queue: RedisMessageQueue, core: Core, executed: bool
) -> None:
    queue.publish_many([number] for number in range(2500))
    lease = queue.claim(2500)
    verdicts = [Verdict("nack", lease.messages[:2100], error="x"), Verdict("ack", lease.messages[2100:])]
    operation = settle(lease._session, lease._batch, lease._batch.verdicts.record(verdicts))
    second = operation.send(core.do(next(operation)))
    if executed:
        core.do(second)
    with pytest.raises(RedisUnavailableError):
        operation.throw(RedisUnavailableError("gone"))
    assert queue.depth().returned == (2000 if executed else 1000)
    lease.settle(*verdicts)
    assert (lease.counts.returned, lease.counts.acked) == (2100, 400)
    assert (queue.depth().returned, queue.stats().acked, queue.depth().in_flight) == (2100, 400, 0)
