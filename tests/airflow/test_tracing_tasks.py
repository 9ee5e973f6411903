"""Tasks that Airflow's supervisor runs export spans of their own, and those of queues are part of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.deployment import Deployment
from tests.support.otlp import receiving_spans
from tests.support.project import ROOT

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "lineage.py"


@pytest.mark.full
def test_tasks_of_a_deployment_export_one_trace_of_their_run(
    airflow_deployment: Deployment, queue: RedisMessageQueue
) -> None:
    program = [sys.executable, "-m", "tests.airflow.supervised", str(airflow_deployment.home), str(DAG_FILE)]
    with receiving_spans() as (endpoint, received):
        environment = {
            **os.environ,
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        subprocess.run([*program, "lineage", queue.name], cwd=ROOT, check=True, timeout=200, env=environment)
    by_name = {span.name: span for span in received}
    name = queue.name
    publish, handle, task = by_name[f"publish {name}"], by_name[f"handle {name}"], by_name["worker.drain"]
    assert publish.parent_span_id == by_name["worker.publish"].span_id
    assert (handle.trace_id, handle.parent_span_id) == (task.trace_id, task.span_id)
    assert publish.span_id in {link.span_id for link in handle.links}
    assert by_name["publish forwarded"].parent_span_id == handle.span_id
    assert "FINCH" not in str(received)
