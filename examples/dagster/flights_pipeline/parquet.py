"""Write a batch of messages as one Parquet file. Spark's workers import this module, and nothing of Dagster."""

from __future__ import annotations

import os
import time

from flights_pipeline.settings import OUTPUT, TEXT
from sluicegate import DrainContext, Message


def write_parquet(batch: list[Message], ctx: DrainContext) -> None:
    """Write one file per lease: whoever takes the lease over after a crash replaces this file and no other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {
        "partition": ctx.partition, "chunk": ctx.chunk, "lease_id": ctx.lease_id,
        "deliveries": batch[0].delivery_count, "pid": os.getpid(), "started": time.time(),
    }  # fmt: skip
    rows = [{"message_id": message.id, **message.json()} for message in batch]
    schema = pa.schema([(name, pa.string() if name in TEXT else pa.int64()) for name in rows[0]])
    table = pa.Table.from_pylist(rows, schema.with_metadata({name: str(value) for name, value in about.items()}))
    pq.write_table(table, ctx.output_file(OUTPUT / "flights" / f"partition={ctx.partition}", ".parquet"))
