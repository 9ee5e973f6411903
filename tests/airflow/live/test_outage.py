"""Redis is away for half a minute while tasks wait for messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.api import EVERY_SECONDS
from tests.airflow.live.deployment import LiveDeployment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]

OUTAGE_SECONDS = 30.0
SENSORS = 4


@pytest.fixture
def stopped(deployment: LiveDeployment) -> Iterator[Callable[[], None]]:
    """Yield a function that stops Redis; the teardown starts it again if the test has not."""
    yield deployment.redis.stop
    if not deployment.redis.runs:
        deployment.redis.start()


def test_sensors_that_are_rescheduled_survive_an_outage_of_redis(
    deployment: LiveDeployment, queue_name: str, stopped: Callable[[], None]
) -> None:
    queues = [f"{queue_name}-{number}" for number in range(SENSORS)]
    deployment.ready("waits")
    run_id = deployment.trigger("waits", queues=queues)
    deployment.wait_for_tasks("waits", run_id, "up_for_reschedule", "gate", count=SENSORS)

    begun = time.monotonic()
    stopped()
    wait_until(lambda: time.monotonic() - begun > OUTAGE_SECONDS, "the outage ends", every_seconds=EVERY_SECONDS)
    logs = [partial(deployment.log, "waits", run_id, "gate", map_index=number) for number in range(SENSORS)]
    wait_until(
        lambda: all("Redis cannot be reached" in log() for log in logs),
        "each sensor has met it",
        every_seconds=EVERY_SECONDS,
    )
    deployment.redis.start()
    for name in queues:
        queue = RedisMessageQueue(name, url=deployment.redis.url)
        queue.publish({"n": 1})
        queue.close()

    deployment.wait_for_run("waits", run_id)
    assert deployment.tasks("waits", run_id) == {
        "queues": "success",
        **{f"gate[{number}]": "success" for number in range(SENSORS)},
    }
