"""Publish orders with Dagster, and drain them into JSON lines once 1,000 are ready or one has waited five minutes.

export REDIS_URL=embedded://$PWD/build/orders DAGSTER_HOME=$PWD/build/dagster
mkdir -p $DAGSTER_HOME && touch $DAGSTER_HOME/dagster.yaml
dg launch --assets published -f example_dags/dagster_quickstart.py
dagster-daemon run -f example_dags/dagster_quickstart.py     # opens the gate

`dg` comes from the package dagster-dg-cli. With dagster-webserver, `dg dev -f …` does both in a browser.
"""

from pathlib import Path

import dagster as dg

from dagster_sluicegate import QueueDrainContext, RedisQueueResource, build_queue_depth_sensor, build_queue_drain_asset
from sluicegate import Message

FOLDER = Path("build/dagster_quickstart")


@dg.asset
def published(queue: RedisQueueResource) -> dg.MaterializeResult:
    """Publish orders; publishing them again within an hour adds nothing."""
    with queue.get_queue() as orders:
        report = orders.publish_many({"order_id": n, "amount": n % 100} for n in range(2500))
    return dg.MaterializeResult(metadata={"accepted": report.accepted, "duplicates": report.duplicates})


def write(messages: list[Message], ctx: QueueDrainContext) -> None:
    """Write one file per batch, named by its lease: a retry overwrites its own file and nothing else."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{ctx.lease_key}.jsonl").write_text("".join(message.text() + "\n" for message in messages))


orders = build_queue_drain_asset(spec=dg.AssetSpec("orders", deps=[published]), process=write, settle="per_batch")

defs = dg.Definitions(
    assets=[published, orders],
    sensors=[
        build_queue_depth_sensor(
            name="orders_gate",
            target=orders,
            min_ready=1000,
            max_age_seconds=300,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
    ],
    resources={
        "queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders", deduplication_key="order_id")
    },
)
