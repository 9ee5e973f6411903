"""The code of docs/spark-records.md, run as it stands in the order of the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
