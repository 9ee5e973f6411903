"""Spark's task without Spark: reports as Arrow batches, and what is pickled into a plan."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from sluicegate import RedisMessageQueue
from sluicegate.spark import PartitionSummary
from sluicegate.spark.draining import pickling, task
from tests.draining.helpers import Numbers, plan_for
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer


def partition_rows(*partitions: int) -> list[pa.RecordBatch]:
    """Return what Spark gives a task: its rows of a range."""
    return [pa.RecordBatch.from_arrays([pa.array([partition])], names=["id"]) for partition in partitions]


def test_a_task_answers_with_one_report_per_partition(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(5)
    spec, plan = queue.spec().to_json(), pickling.dumps(plan_for(lambda batch: None))

    answers = list(task.run(spec, plan, partition_rows(3, 4)))

    assert [answer.schema for answer in answers] == [pa.schema({"report": pa.string()})] * 2
    reports = [PartitionSummary.from_dict(json.loads(answer.column("report")[0].as_py())) for answer in answers]
    assert [(report.partition, report.acked) for report in reports] == [(3, 5), (4, 0)]


def test_no_secret_and_no_payload_is_in_what_travels(
    server: RedisServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret-value")
    queue = make_queue(url="redis://user@localhost:1/0?password_env=ORDERS_PASSWORD")

    pickled = pickling.dumps((queue.spec().to_json(), plan_for(lambda batch: None)))

    assert b"ORDERS_PASSWORD" in pickled
    assert b"s3cret-value" not in pickled
    assert pickle.loads(pickled)[1].run_id == "run"  # noqa: S301  (our own bytes)
