"""Redis is away while a sensor ticks, and in the middle of a drain."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.dagster.live.conftest import GateOf
from tests.dagster.live.deployment import LiveDagster
from tests.dagster.live.gate import LiveGate
from tests.dagster.live.settings import RETRY_BUDGET_SECONDS
from tests.support import handlers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]

SHORT_SECONDS = RETRY_BUDGET_SECONDS / 2


@pytest.fixture
def stop(deployment: LiveDagster) -> Iterator[Callable[[], None]]:
    """Yield a function that stops Redis; the teardown starts it again if the test has not."""
    yield deployment.redis.stop
    if not deployment.redis.runs:
        deployment.redis.start()


def test_a_tick_without_redis_fails_visibly_and_the_gate_opens_when_redis_is_back(
    gate_of: GateOf, stop: Callable[[], None]
) -> None:
    gate = gate_of("away")
    gate.publish(10)
    stop()
    gate.open()

    gate.deployment.wait(lambda: any(tick.error for tick in gate.ticks()), "a tick fails")
    error = gate.ticks()[0].error.to_string()
    assert f"127.0.0.1:{gate.deployment.redis.port}" in error
    assert gate.runs() == []

    gate.deployment.redis.start()
    (run,) = gate.wait_for("SUCCESS")
    assert gate.metadata(run)["sluicegate/acked"] == 10


def hold_without_redis(gate: LiveGate, stop: Callable[[], None]) -> float:
    """Stop Redis while a drain works on its second batch, let the drain continue, and return the time."""
    gate.publish(30, holds=15)
    gate.open()
    gate.wait_until_held()
    stop()
    gate.let_go()
    return time.time()


def test_a_drain_survives_an_outage_shorter_than_its_retry_budget(gate_of: GateOf, stop: Callable[[], None]) -> None:
    gate = gate_of("short_outage")
    begun = hold_without_redis(gate, stop)
    wait_until(lambda: time.time() - begun > SHORT_SECONDS, "the outage ends")
    gate.deployment.redis.start()

    gate.wait_for("SUCCESS")
    assert handlers.numbers(gate.folder) == list(range(30))
    gate.check_settled(30)


def test_a_longer_outage_ends_the_run_after_one_retry_budget_and_the_next_run_finishes(
    gate_of: GateOf, stop: Callable[[], None]
) -> None:
    gate = gate_of("long_outage")
    begun = hold_without_redis(gate, stop)
    (failed,) = gate.wait_for("FAILURE")
    stats = gate.deployment.instance.get_run_stats(failed.run_id)
    assert stats.end_time is not None
    assert stats.end_time - begun < 2 * RETRY_BUDGET_SECONDS
    gate.deployment.redis.start()

    gate.wait_for("FAILURE", "SUCCESS")
    assert Counter(handlers.numbers(gate.folder)) == Counter([*range(30), *range(10, 20)])
    gate.check_settled(30)
