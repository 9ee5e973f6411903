"""Claim a batch in one task, work on it in several others, and ack it after the last of them.

Use it when one function cannot do the work: the steps run on different machines, have retries of their own, or are
existing operators. The messages stay leased while the tasks run, and no payload goes through Airflow.

What happens on failure:
- A step fails: its own retries see the same messages. When they are used up, the settle returns the batch to the queue
  and fails, and with it the run; the next run claims the batch again.
- The worker of the claim is killed: its retry takes over the same batch.
- The run takes longer than `lease_seconds` between two steps: the batch is redelivered, and the settle fails and says
  so. Make it longer than any wait for a worker.
- The run is cleared after its batch was acked: the claim is skipped, and nothing is done twice.

It needs the connection `sluicegate_default`.
"""

from __future__ import annotations

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator, RedisQueueSettleLeaseOperator

QUEUE = "example-invoices"

with DAG("lease_across_tasks", schedule="@hourly", catchup=False, tags=["sluicegate"]):
    claim = RedisQueueClaimOperator(task_id="claim", queue_name=QUEUE, max_messages=500, lease_seconds=7200, retries=2)

    @task(retries=2)
    def check(handle: dict[str, str]) -> int:
        """Bury what cannot be booked, so that the later steps do not see it, and keep the rest of the batch."""
        with attached_lease(handle) as lease:
            for message in lease.messages:
                if message.json()["cents"] < 0:
                    lease.bury(message, reason="negative amount")
            return len(lease.messages)

    @task(retries=2)
    def book(handle: dict[str, str]) -> int:
        """Add up what is left. Write to your database here, with the message id as the key of a row."""
        with attached_lease(handle) as lease:
            return sum(message.json()["cents"] for message in lease.messages)

    @task(retries=2)
    def mail(handle: dict[str, str]) -> list[str]:
        """Return whom to write to, once each."""
        with attached_lease(handle) as lease:
            return sorted({message.json()["customer"] for message in lease.messages})

    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output, retries=2)
    claim >> check(claim.output) >> [book(claim.output), mail(claim.output)] >> settle.as_teardown(setups=claim)
