"""A sensor daemon that dies at any point of a tick starts each run once: its own iterations, with real runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest

from sluicegate import RedisMessageQueue
from tests.dagster.helpers import SensorDaemon, daemon
from tests.support.servers import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.full, pytest.mark.timeout(600)]

POINTS = (
    "TICK_CREATED",
    "TICK_HELD",
    "RUN_IDS_RESERVED",
    "RUN_CREATED",
    "RUN_LAUNCHED",
    "RUN_IDS_ADDED_TO_EVALUATIONS",
)
# An exception ends the tick as failed; an interrupt leaves it as it is, as the death of the process does.
WAYS: tuple[Exception | int, ...] = (RuntimeError("the daemon fails"), signal.SIGINT)


@pytest.fixture(scope="module")
def gates(url: str) -> Iterator[SensorDaemon]:
    """Yield a daemon whose code location has a gate on the queue `gates`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATES_REDIS_URL", url)
        patch.setenv("GATES_DEAD_URL", f"redis://127.0.0.1:{free_port()}/0")
        with daemon(Path(__file__).with_name("gates.py")) as gates:
            yield gates


@pytest.fixture
def backlog(url: str) -> Iterator[RedisMessageQueue]:
    """Yield the queue of the gate; each test leaves it empty."""
    with RedisMessageQueue("gates", url=url) as queue:
        yield queue


@pytest.mark.parametrize("way", WAYS, ids=["fails", "dies"])
@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_that_dies_at_any_point_starts_one_run_for_a_backlog(
    gates: SensorDaemon, backlog: RedisMessageQueue, point: str, way: Exception | int
) -> None:
    def crashed() -> bool:
        """Report whether an iteration reached the point, which it does when the sensor is due."""
        before = ticks_begun(gates)
        with suppress(KeyboardInterrupt):
            gates.iterate({"orders_gate": {point: way}})
        return ticks_begun(gates) > before

    earlier = {run.run_id for run in gates.instance.get_runs()}
    generation = backlog.depth().claimed_total
    backlog.publish_many({"n": number} for number in range(5))
    wait_until(crashed, f"a tick ends at {point}", seconds=60)

    def drained() -> bool:
        gates.iterate()
        return backlog.depth().ready == 0

    wait_until(drained, "the next ticks complete what was begun", seconds=60)
    begun = ticks_begun(gates)

    def ticked_again() -> bool:
        gates.iterate()
        return ticks_begun(gates) >= begun + 2

    wait_until(ticked_again, "two more ticks find nothing to do", seconds=60)
    (run,) = [run for run in gates.instance.get_runs() if run.run_id not in earlier]
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags["dagster/run_key"] == f"gates:{generation}:0"
    assert backlog.stats().acked == generation + 5


def ticks_begun(gates: SensorDaemon) -> int:
    return len(gates.ticks("orders_gate")) if gates.has_ticked else 0
