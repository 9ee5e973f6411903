"""Numbers that cannot work are refused before anything is sent, and the largest that are allowed do work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis

import sluicegate
import sluicegate.asyncio
from sluicegate import Lease, RedisMessageQueue, replicated
from sluicegate.errors import ConfigurationError
from tests.support import state
from tests.support.flavours import Flavour

MakeQueue = Callable[..., RedisMessageQueue]
Ask = Callable[[RedisMessageQueue, Lease, Any], object]

HUNDRED_YEARS = 100 * 365 * 86_400
LARGEST = 2**53
NO_DURATIONS = [float("nan"), float("inf"), 1e300, float(sys.maxsize), HUNDRED_YEARS + 1, -1, True, "1"]
NO_NUMBERS = [0.5, 1.0, -1, LARGEST + 1, 10**30, True, "1"]

DURATIONS: dict[str, tuple[str, Ask]] = {
    "claim(lease_seconds)": ("lease_seconds", lambda queue, _, value: queue.claim(lease_seconds=value)),
    "claim(wait_seconds)": ("wait_seconds", lambda queue, _, value: queue.claim(wait_seconds=value)),
    "claim(retention_seconds)": ("retention_seconds", lambda queue, _, value: queue.claim(retention_seconds=value)),
    "claim(take_over_after_seconds)": (
        "take_over_after_seconds",
        lambda queue, lease, value: queue.claim(lease_id=lease.id, take_over_after_seconds=value),
    ),
    "publish(delay_seconds)": ("delay_seconds", lambda queue, _, value: queue.publish("c", delay_seconds=value)),
    "publish_many(delay_seconds)": (
        "delay_seconds",
        lambda queue, _, value: queue.publish_many("cd", delay_seconds=value),
    ),
    "publish_chunks(delay_seconds)": (
        "delay_seconds",
        lambda queue, _, value: list(queue.publish_chunks("cd", delay_seconds=value)),
    ),
    "publish(durability)": (
        "timeout_seconds",
        lambda queue, _, value: queue.publish("c", durability=replicated(1, value)),
    ),
    "redrive(older_than_seconds)": (
        "older_than_seconds",
        lambda queue, _, value: queue.redrive(older_than_seconds=value),
    ),
    "drain(timeout)": ("timeout", lambda queue, _, value: queue.drain(value)),
    "nack(delay_seconds)": ("delay_seconds", lambda _, lease, value: lease.nack(delay_seconds=value)),
    "extend(lease_seconds)": ("lease_seconds", lambda _, lease, value: lease.extend(value)),
    "start_heartbeat(interval_seconds)": (
        "interval_seconds",
        lambda _, lease, value: lease.start_heartbeat(value),
    ),
}
NUMBERS: dict[str, tuple[str, Ask]] = {
    "claim(limit)": ("limit", lambda queue, _, value: queue.claim(value)),
    "peek(count)": ("count", lambda queue, _, value: queue.peek(value)),
    "peek(offset)": ("offset", lambda queue, _, value: queue.peek(1, offset=value)),
    "redrive(limit)": ("limit", lambda queue, _, value: queue.redrive(limit=value)),
    "redrive(page_size)": ("page_size", lambda queue, _, value: queue.redrive(page_size=value)),
    "publish_chunks(batch_size)": (
        "batch_size",
        lambda queue, _, value: list(queue.publish_chunks("cd", batch_size=value)),
    ),
}


@pytest.fixture
def lease(queue: RedisMessageQueue) -> Lease:
    """Return a lease of one message, beside a dead letter and a message that waits."""
    queue.publish_many("abc")
    queue.claim().bury()
    return queue.claim(lease_id="held", lease_seconds=60)


@pytest.mark.parametrize(("name", "ask"), DURATIONS.values(), ids=list(DURATIONS))
def test_a_duration_that_cannot_work_is_refused_and_changes_nothing(
    queue: RedisMessageQueue, lease: Lease, client: redis.Redis, name: str, ask: Ask
) -> None:
    assert taken(NO_DURATIONS, queue, lease, client, name, ask) == []


@pytest.mark.parametrize(("name", "ask"), NUMBERS.values(), ids=list(NUMBERS))
def test_a_number_that_cannot_work_is_refused_and_changes_nothing(
    queue: RedisMessageQueue, lease: Lease, client: redis.Redis, name: str, ask: Ask
) -> None:
    assert taken(NO_NUMBERS, queue, lease, client, name, ask) == []


def taken(
    values: list[Any], queue: RedisMessageQueue, lease: Lease, client: redis.Redis, name: str, ask: Ask
) -> list[Any]:
    """Return the values that are not refused by name before anything is sent."""
    before = state.dumps(client)
    client.config_resetstat()
    through = []
    for value in values:
        try:
            ask(queue, lease, value)
            through.append(value)
        except ConfigurationError as error:
            if name not in str(error):
                through.append(value)
    assert "cmdstat_evalsha" not in client.info("commandstats")
    assert state.dumps(client) == before
    lease.ack()
    assert queue.publish("later"), "a drain that is refused stops nothing"
    return through


@pytest.mark.parametrize("seconds", [0, 30, 60])
def test_a_heartbeat_that_would_come_too_late_is_refused(queue: RedisMessageQueue, lease: Lease, seconds: int) -> None:
    with pytest.raises(ConfigurationError, match="interval_seconds"):
        lease.start_heartbeat(seconds)
    lease.start_heartbeat(29)
    lease.stop_heartbeat()
    assert queue.depth().in_flight == 1


@pytest.mark.parametrize("option", ["retry_budget_seconds", "retry_initial_delay_seconds", "retry_max_delay_seconds"])
def test_a_gateway_refuses_durations_that_cannot_work(flavour: Flavour, option: str) -> None:
    package = sluicegate.asyncio if flavour.asyncio else sluicegate
    for value in NO_DURATIONS:
        with pytest.raises(ConfigurationError, match=option):
            package.RedisGateway(url="redis://127.0.0.1:1/0", **{option: value})


def test_a_queue_refuses_a_gateway_of_the_users_own_with_such_a_budget(flavour: Flavour) -> None:
    package = sluicegate.asyncio if flavour.asyncio else sluicegate
    gateway: Any = package.RedisGateway(url="redis://127.0.0.1:1/0")
    for value in NO_DURATIONS:
        gateway.retry_budget_seconds = value  # a receipt lives for twice that, and is written after the messages
        with pytest.raises(ConfigurationError, match="retry_budget_seconds"):
            package.RedisMessageQueue("orders", gateway=gateway)


def test_the_largest_numbers_do_work(make_queue: MakeQueue) -> None:
    queue = make_queue(
        get_deduplication_key="k",
        deduplication_policy="until_acked",
        deduplication_window_seconds=HUNDRED_YEARS,
        retry_budget_seconds=HUNDRED_YEARS,
        max_pending_length=LARGEST,
        max_dead_length=LARGEST,
    )
    report = queue.publish_many([{"k": n} for n in range(4)])
    assert report.accepted == 4
    assert queue.publish({"k": 4}, delay_seconds=HUNDRED_YEARS)
    lease = queue.claim(4, lease_id="l", lease_seconds=HUNDRED_YEARS, retention_seconds=HUNDRED_YEARS)
    held = queue.claim(lease_id="l", take_over_after_seconds=HUNDRED_YEARS)
    assert held.state is sluicegate.LeaseState.HELD
    lease.extend(HUNDRED_YEARS)
    lease.start_heartbeat(HUNDRED_YEARS / 3)
    lease.stop_heartbeat()
    first, second, third, fourth = lease.messages
    lease.bury(first)
    lease.nack(second, delay_seconds=HUNDRED_YEARS)
    lease.nack(third)
    lease.ack(fourth)
    assert queue.claim(lease_id="l").state is sluicegate.LeaseState.ACKED
    assert queue.redrive(older_than_seconds=HUNDRED_YEARS).scanned == 0
    for place in ("pending", "delayed", "dead", "completed"):
        assert len(queue.peek(LARGEST, state=place)) == {"delayed": 2, "dead": 1}.get(place, 0)  # type: ignore[call-overload]
        assert queue.peek(LARGEST, state=place, offset=LARGEST) == []  # type: ignore[call-overload]
    assert queue.redrive(limit=LARGEST, page_size=1000).redriven == 1
    depth = queue.depth()
    assert (depth.pending, depth.returned, depth.delayed, depth.dead, depth.in_flight) == (1, 1, 2, 0, 0)
