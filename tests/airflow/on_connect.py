"""Drain on Spark Connect with the operator: stopped in the first batch, and tried again.

Usage: python -m tests.airflow.on_connect HOME QUEUE FOLDER

It prints what it found as one line of JSON. The connections are in the environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def drain(queue_name: str, folder: str) -> dict[str, Any]:
    """Drain until a signal stops it while a batch is held, then to the end."""
    from airflow.exceptions import AirflowException

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator
    from tests.airflow.instance import Instance
    from tests.support.waiting import wait_until

    def process(batch: Any, ctx: Any) -> None:
        if not os.path.exists(folder + "/go"):
            Path(folder, "held").touch()
            time.sleep(120)
        numbers = [message.json()["n"] for message in batch]
        ctx.output_file(folder, ".json").write_text(json.dumps(numbers))

    def stop() -> None:
        wait_until(Path(folder, "held").exists, "a batch is held", 120)
        told["seconds"] = -time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)

    operator = SparkRedisQueueDrainOperator(
        task_id="work",
        queue_name=queue_name,
        process=process,
        conn_id="connect",
        partitions=1,
        batch_size=10,
        lease_seconds=600,
    )
    context: Any = {"ti": Instance()}
    told: dict[str, Any] = {}
    signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())
    threading.Thread(target=stop, daemon=True).start()
    try:
        operator.execute(context)
    except AirflowException as error:
        told["seconds"] += time.monotonic()
        told["stopped"] = str(error)
    with RedisQueueHook() as hook:
        told["in_flight"] = hook.get_queue(queue_name).depth().in_flight
    Path(folder, "go").touch()
    return {**told, "report": operator.execute(context)}


if __name__ == "__main__":
    os.environ["AIRFLOW_HOME"] = sys.argv[1]
    print(json.dumps(drain(*sys.argv[2:])))
