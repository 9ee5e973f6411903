"""A sensor waits in the triggerer."""

from __future__ import annotations

from contextlib import closing

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def test_a_gate_that_opens_before_the_worker_has_ended_does_not_fail_its_deferred_sensor(
    deployment: LiveDeployment, queue_name: str
) -> None:
    deployment.ready("waits_deferred")
    for name in (f"{queue_name}-0", f"{queue_name}-1"):  # the first trigger of a triggerer is too slow to meet this
        run_id = deployment.trigger("waits_deferred", queues=[name])
        deployment.wait_for_tasks("waits_deferred", run_id, "deferred", "gate")
        with closing(RedisMessageQueue(name, url=deployment.redis.url)) as queue:
            queue.publish({"n": 1})
        deployment.wait_for_run("waits_deferred", run_id)


def test_a_run_continues_when_its_batch_has_been_drained_by_a_consumer_of_its_own(
    deployment: LiveDeployment, queue: RedisMessageQueue
) -> None:
    deployment.ready("batches")
    run_id = deployment.trigger("batches", queue=queue.name)
    deployment.wait_for_tasks("batches", run_id, "deferred", "drained")
    queue.claim(5).nack()
    deployment.kill("triggerer")  # another one finds the trigger in the database
    deployment.start("triggerer")
    assert deployment.tasks("batches", run_id)["drained"] == "deferred"
    while lease := queue.claim(100):
        lease.ack()

    deployment.wait_for_run("batches", run_id)

    found = deployment.xcom("batches", run_id, "drained")
    assert (found["batch_id"], found["total"], found["done"]) == (f"rows/{run_id}", 20, 20)
    assert deployment.xcom("batches", run_id, "after") == 20
