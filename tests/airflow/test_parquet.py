"""Parquet files: their rows as messages, and what is said about those that cannot be read."""

from __future__ import annotations

import datetime
import decimal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sources import MalformedMessageFileError, MessageFile
from sluicegate import RedisMessageQueue
from sluicegate.bulk.publisher import PublishStoppedError
from sluicegate.errors import ConfigurationError

pytestmark = pytest.mark.airflow

DAY = datetime.date(2013, 1, 1)


def write(path: Path, rows: list[dict[str, Any]], row_group_size: int = 2) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=row_group_size)
    return path


def test_rows_of_every_group_are_objects_in_their_order(tmp_path: Path) -> None:
    rows = [{"id": number, "tags": ["a", "b"], "address": {"city": "Ulm"}, "note": None} for number in range(2500)]

    found = list(MessageFile(write(tmp_path / "a.PARQUET", rows, 1200)))

    assert found == list(enumerate(rows, start=1))


def test_dates_and_decimals_of_a_file_are_published(queue: RedisMessageQueue, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"day": DAY, "price": decimal.Decimal("9.90")}])

    RedisQueuePublishOperator(task_id="p", queue_name=queue.name, path=path, json_default="iso").execute({})

    assert queue.peek()[0].json() == {"day": "2013-01-01", "price": "9.90"}


def test_a_row_that_cannot_be_published_is_named(queue: RedisMessageQueue, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"id": 1}, {"id": None}, {"id": 3}])
    operator = RedisQueuePublishOperator(task_id="p", queue_name=queue.name, path=path, deduplication_key="id")

    with pytest.raises(Exception, match=r"a\.parquet, row 2: deduplication field 'id' is null"):
        operator.execute({})


def test_a_file_without_rows_holds_no_messages(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "a.parquet")

    assert list(MessageFile(tmp_path / "a.parquet")) == []


@pytest.mark.parametrize("damage", ["cut short", "empty", "no parquet"])
def test_a_damaged_file_is_tried_again(queue: RedisMessageQueue, tmp_path: Path, damage: str) -> None:
    path = write(tmp_path / "a.parquet", [{"id": number} for number in range(1000)])
    kept = {"cut short": path.read_bytes()[:-100], "empty": b"", "no parquet": b'{"id": "CANARY"}\n' * 100}
    path.write_bytes(kept[damage])

    with pytest.raises(MalformedMessageFileError, match=r"a\.parquet: the file is damaged or cut short") as damaged:
        list(MessageFile(path))
    assert not damaged.value.is_permanent
    assert "CANARY" not in str(damaged.value)
    with pytest.raises(PublishStoppedError):  # and so not AirflowFailException
        RedisQueuePublishOperator(task_id="p", queue_name=queue.name, path=path).execute({})


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", [{"id": 1}])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(ConfigurationError, match="Parquet needs pyarrow where it is read; pip install pyarrow"):
        MessageFile(path).check()
