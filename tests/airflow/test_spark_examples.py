"""The example DAG that drains with Spark; its session is one that the operator makes and stops."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.examples import example

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("jvm")]


def test_a_file_goes_through_the_gate_to_spark_and_each_order_once(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    connect(extra={"url": embedded_url})
    day = datetime(2013, 1, 1, tzinfo=UTC)
    orders = [{"tenant": "acme", "order_id": number % 1200, "amount": number / 4} for number in range(1500)]
    (tmp_path / "incoming").mkdir()
    file = tmp_path / "incoming" / "2013-01-01.jsonl.gz"
    file.write_bytes(gzip.compress("".join(json.dumps(order) + "\n" for order in orders).encode()))

    with example(airflow_deployment, "publish_gate_spark_drain", tmp_path) as dags:
        run = dags["publish_gate_spark_drain"].test(run_after=day, logical_date=day)

    found = xcoms(run)
    assert states(run) == {"publish": "success", "gate": "success", "drain": "success"}
    assert (found["publish"]["published"], found["publish"]["duplicates"]) == (1200, 300)
    assert found["gate"]["fired_by"] == "depth"
    assert found["drain"]["acked"] == 1200
    assert sorted(pq.read_table(tmp_path / "orders")["order_id"].to_pylist()) == list(range(1200))
    queue = RedisMessageQueue("example-orders", url=embedded_url)
    depth = queue.depth()
    queue.close()
    assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)
