"""Sensors that give their worker back while they wait; the queues are in the run's conf."""

from __future__ import annotations

import os
import subprocess

from airflow.sdk import DAG, Context, get_current_context, task

from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor


@task
def queues() -> list[str]:
    names: list[str] = get_current_context()["dag_run"].conf["queues"]
    return names


with DAG("waits", schedule=None):
    RedisQueueSensor.partial(task_id="gate", mode="reschedule", poke_interval=5, timeout=300).expand(
        queue_name=queues()
    )


def leave_process(context: Context) -> None:
    """Start a process that outlives the task and holds its output, so that the worker reports the task's end late."""
    os.environ["AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL"] = "5"  # Airflow's default; the deployment has less
    subprocess.Popen(["sleep", "10"])
    subprocess.run(["sleep", "4"], check=True)  # a resumed task is still running when that report comes


with DAG("waits_deferred", schedule=None):
    RedisQueueSensor.partial(
        task_id="gate", deferrable=True, poke_interval=0.5, timeout=300, pre_execute=leave_process
    ).expand(queue_name=queues())
