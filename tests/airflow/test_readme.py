"""The README's DAG, run as it stands but for the folder that it reads."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow


def test_the_readmes_dag_publishes_waits_and_works_without_a_logical_date(
    airflow_deployment: Deployment,
    embedded_url: str,
    connect: Connect,
    orders: Callable[..., Path],
    tmp_path: Path,
) -> None:
    connect(extra={"url": embedded_url})
    lines = orders(1000).read_bytes()
    code = snippet("airflow").replace("/data/orders/", f"{tmp_path}/orders-of-")
    file = tmp_path / "readme_dag.py"
    file.write_text(code)
    with airflow_deployment.dags([file]) as dags:
        (tmp_path / "orders-of-2013-01-01.jsonl.gz").write_bytes(gzip.compress(lines))
        run = dags["orders"].test(run_after=_midnight("2013-01-01"), logical_date=None)
    assert states(run) == {"publish": "success", "gate": "success", "work": "success"}
    assert xcoms(run)["publish"]["published"] == 1000
    assert xcoms(run)["gate"]["fired_by"] == "depth"
    assert xcoms(run)["work"] == 1000
    queue = RedisMessageQueue("orders", url=embedded_url)
    depth = queue.depth()
    queue.close()
    assert (depth.ready, depth.in_flight) == (0, 0)


def _midnight(day: str) -> object:
    from airflow.sdk import timezone

    return timezone.parse(day)
