"""Publish and drain one queue per tenant, with mapped tasks.

Use it when tenants must not wait for each other: each has a queue, dead letters and a mapped task of its own, so that
a tenant who sends a million orders, or broken ones, delays nobody else.

What happens on failure:
- The orders of one tenant fail: that mapped task fails and is retried; the others are done.
- A worker is killed: the retry of that mapped task takes over its batch, because the map index is in the lease's name.
- A tenant's queue is empty: its mapped task is skipped.

It needs the connection `sluicegate_default`. The tenants are read when the run starts, so a new one needs no change of
the DAG.
"""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from sluicegate import DrainContext, Message

QUEUE = "example-tenant-"
STORED = "/data/tenants"

with DAG("mapped_tenants", schedule="@hourly", catchup=False, tags=["sluicegate"]):

    @task
    def list_tenants() -> list[str]:
        """Return who has orders; in your DAG, a query or the names of folders."""
        return ["acme", "initech", "umbrella"]

    @task
    def list_files(tenants: list[str]) -> list[dict[str, Any]]:
        """Return what the publish of each tenant gets."""
        return [{"queue_name": QUEUE + name, "path": f"/data/incoming/{name}.jsonl"} for name in tenants]

    tenants = list_tenants()
    publish = RedisQueuePublishOperator.partial(
        task_id="publish", deduplication_key="order_id", map_index_template="{{ task.queue_name }}", retries=2
    ).expand_kwargs(list_files(tenants))

    @task.redis_queue(
        queue_name=QUEUE + "{{ task.op_kwargs['tenant'] }}",
        skip_if_empty=True,
        map_index_template="{{ task.queue_name }}",
        trigger_rule="all_done",  # a tenant whose file is missing keeps no other from its drain
        retries=2,
    )
    def drain(batch: list[Message], ctx: DrainContext, tenant: str) -> None:
        """Write one file per lease into the folder of the tenant."""
        lines = [json.dumps(message.json()) + "\n" for message in batch]
        ctx.output_file(f"{STORED}/{tenant}", ".jsonl").write_text("".join(lines))

    publish >> drain.expand(tenant=tenants)
