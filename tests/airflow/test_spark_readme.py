"""The README's DAG, run as it stands but for the folders that it reads and writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.support.snippets import snippet

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("jvm")]


def test_the_readmes_dag_publishes_waits_and_stores_without_a_logical_date(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq
    from airflow.sdk import timezone

    connect(extra={"url": embedded_url})
    orders = [{"tenant": "acme", "order_id": number, "amount": number / 4} for number in range(1000)]
    (tmp_path / "incoming").mkdir()
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    (tmp_path / "incoming" / "2013-01-01.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    file = tmp_path / "readme_dag.py"
    file.write_text(snippet("airflow").replace("/data", str(tmp_path)))

    with airflow_deployment.dags([file]) as dags:
        run = dags["orders"].test(run_after=timezone.parse("2013-01-01"), logical_date=None)

    found = xcoms(run)
    assert states(run) == {"publish": "success", "gate": "success", "drain": "success"}
    assert found["publish"]["published"] == 1000
    assert found["gate"]["fired_by"] == "depth"
    assert found["drain"]["acked"] == 1000
    stored = pq.read_table(tmp_path / "orders", columns=list(orders[0])).to_pylist()
    assert sorted(stored, key=lambda order: order["order_id"]) == orders
    queue = RedisMessageQueue("orders", url=embedded_url)
    depth = queue.depth()
    queue.close()
    assert (depth.ready, depth.in_flight) == (0, 0)
