"""The code of docs/spark-records.md, run as it stands in the order of the page."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sluicegate import RedisMessageQueue
from sluicegate.spark import SluicegateDataSource
from tests.support.snippets import snippet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Page:
    """Runs the snippets of the page with one set of names, and keeps what they printed."""

    def __init__(self, capfd: pytest.CaptureFixture[str], **names: Any) -> None:
        self.names = {**names, "__name__": "page"}
        self._capfd = capfd

    def run(self, name: str) -> list[str]:
        """Run a snippet and return the lines that it printed."""
        self._capfd.readouterr()
        exec(compile(snippet(name), name, "exec"), self.names)  # noqa: S102  (it is ours, and is shown to be run)
        return self._capfd.readouterr().out.splitlines()


@pytest.fixture
def page(spark: SparkSession, queue: RedisMessageQueue, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Page:
    spark.dataSource.register(SluicegateDataSource)
    return Page(capfd, spark=spark, queue=queue, folder=tmp_path)


def test_misfits_are_buried_or_read_as_nulls(page: Page, queue: RedisMessageQueue, tmp_path: Path) -> None:
    queue.publish_many([{"order_id": "o1", "amount": 1.5}, {"order_id": "o2", "amount": "two"}])

    (line,) = page.run("spark-bury")
    assert line.startswith("invalid_payload - the payload does not fit the declared schema: field 'amount' is a string")
    assert pq.read_table(tmp_path / "archive").to_pylist() == [{"order_id": "o1", "amount": 1.5}]
    assert (queue.stats().acked, queue.depth().dead) == (1, 1)

    queue.redrive(reason="invalid_payload")
    assert page.run("spark-corrupt") == ["1 of 1 are corrupt"]


def test_variants_and_raw_json_give_the_same_values(page: Page, queue: RedisMessageQueue) -> None:
    queue.publish({"order_id": "o1", "details": {"items": [{"sku": "s7"}]}})

    lines = page.run("spark-variants")

    assert [line for line in lines if "o1" in line] == ["|      o1| s7|"] * 2


def test_a_schema_is_inferred_and_read_with(page: Page, queue: RedisMessageQueue) -> None:
    queue.publish_many([b'{"order_id":"o1","amount":1}', b'{"amount":2.5}', b"no JSON"])

    assert page.run("spark-infer") == ["amount double, order_id string", "1 of 3 are no JSON objects"]
    rows = page.names["orders"].collect()
    assert [tuple(row) for row in rows] == [(1.0, "o1"), (2.5, None), (None, None)]


def test_avro_is_decoded_without_a_jar(page: Page, queue: RedisMessageQueue) -> None:
    fields = [{"name": "order_id", "type": "string"}, {"name": "amount", "type": "double"}]
    written = io.BytesIO()
    fastavro.schemaless_writer(
        written, {"type": "record", "name": "Order", "fields": fields}, {"order_id": "o1", "amount": 1.5}
    )
    queue.publish(written.getvalue())

    lines = page.run("spark-avro")

    assert [line for line in lines if "o1" in line] == ["|      o1|   1.5|"]
    assert queue.stats().acked == 1


PB2 = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
order = file.message_type.add(name="Order")
order.field.add(name="order_id", number=1, type=9, label=1)
order.field.add(name="amount", number=2, type=1, label=1)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
"""  # stands for what protoc makes


def test_protobuf_is_decoded_in_a_drain(
    page: Page, spark: SparkSession, queue: RedisMessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "modules" / "orders_pb2.py"
    module.parent.mkdir()
    module.write_text(PB2)
    spark.addArtifacts(str(module), pyfile=True)
    monkeypatch.syspath_prepend(str(module.parent))
    orders = importlib.import_module("orders_pb2")
    queue.publish_many([orders.Order(order_id=f"o{n}", amount=n).SerializeToString() for n in range(2)])

    assert page.run("spark-protobuf") == ["2 orders stored"]

    assert [file.read_text() for file in tmp_path.glob("*.txt")] == ["o0 0.0\no1 1.0"]
    sys.modules.pop("orders_pb2")
