"""Publish from a generator that waits after 250 messages until the test lets it continue."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator


def numbers() -> Iterator[dict[str, Any]]:
    folder = Path(os.environ["SLUICEGATE_TEST_FOLDER"])
    for number in range(1000):
        if number == 250:
            (folder / "waits").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)
        yield {"number": number}


with DAG("publishes_slowly", schedule=None, default_args={"retries": 1, "retry_delay": 0}) as dag:
    RedisQueuePublishOperator(
        task_id="publish",
        queue_name="{{ dag_run.conf['queue'] }}",
        messages=numbers,
        deduplication_key="position",
        batch_size=100,
    )
