"""Functions that work on batches; the queue and the folder are in the run's conf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from sluicegate import DrainContext, Message

QUEUE = "{{ dag_run.conf['queue'] }}"

with DAG("decorated", schedule=None) as dag:

    @task
    def folder() -> str:
        return "{{ no template }}"

    @task.redis_queue(queue_name=QUEUE, batch_size=10)
    def plain(batch: list[Message]) -> None:
        assert len(batch) <= 10

    @task.redis_queue(queue_name=QUEUE + "-{{ task.op_kwargs['tenant'] }}")
    def store(batch: list[Message], ctx: DrainContext, tenant: str, made: str, where: str, ti: Any = None) -> None:
        assert made == "{{ no template }}"
        name = f"{tenant}-{ti.map_index}-{ctx.chunk}.json"
        (Path(where) / name).write_text(json.dumps([message.json()["n"] for message in batch]))

    plain() >> store.partial(made=folder(), where="{{ dag_run.conf['folder'] }}").expand(tenant=["acme", "initech"])
