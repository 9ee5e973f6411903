"""The README's drain, run as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import stop_server
from tests.support.snippets import snippet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_readmes_drain_writes_every_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "build" / "orders"
    code = snippet("spark")
    names: dict[str, Any] = {"__name__": "readme"}
    queue = RedisMessageQueue("orders", url=f"embedded://{folder}")
    try:
        ids = queue.publish_many({"order_id": n} for n in range(2500)).ids
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102  (it is ours, and is shown to be run)
        assert queue.depth().in_flight == queue.depth().ready == 0
    finally:
        queue.close()
        stop_server(folder)
    assert names["summary"].acked == 2500
    written = [name for file in folder.glob("[!.]*.parquet") for name in pq.read_table(file)["id"].to_pylist()]
    assert sorted(written) == sorted(ids)
    assert spark.sparkContext.applicationId
