"""Parquet files are published by columns, with the keys, errors and repeats of their rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluicegate import RedisMessageQueue
from sluicegate.bulk.message_file import MessageFile
from sluicegate.bulk.reader import Reader
from sluicegate.core.publishing import EncodedRows, Publishing
from tests.cli.conftest import Call


def written(name: str, columns: dict[str, Any], rows_per_group: int = 700) -> Path:
    parquet.write_table(pa.table(columns), name, row_group_size=rows_per_group)
    return Path(name)


def reader_of(path: Path, transform: Any = None) -> Reader:
    file = MessageFile(path)
    return Reader(file, file.describe, transform, 1000, is_at_hand=True)


@pytest.fixture
def publishing(orders: RedisMessageQueue) -> Publishing:
    return orders.session.publishing


def test_rows_are_published_with_keys_in_full_calls(call: Call, orders: RedisMessageQueue) -> None:
    path = written("a.parquet", {"id": list(range(2500)), "price": [1.0] * 2500})
    first = call("publish", "orders", path, "--key", "id", "--json").record
    again = call("publish", "orders", path, "--key", "id", "--json").record
    assert (first["published"], first["batches"], again["duplicates"]) == (2500, 3, 2500)
    messages = orders.peek(2500)
    assert [message.payload for message in messages] == [b'{"id":%d,"price":1.0}' % number for number in range(2500)]
    assert [message.deduplication_key for message in messages] == [str(number) for number in range(2500)]


def test_an_unfit_row_is_named_and_the_calls_before_it_stay(call: Call, orders: RedisMessageQueue) -> None:
    prices = [1.0] * 1800
    prices[1500] = float("nan")
    path = written("a.parquet", {"id": list(range(1800)), "price": prices})
    for arguments, pending in ((("--dry-run",), 0), ((), 1000)):
        failed = call("publish", "orders", path, *arguments)
        assert failed.code != 0
        assert "a.parquet, row 1501: payload has nan at $.price" in " ".join(failed.err.split())
        assert orders.depth().pending == pending


def test_text_that_is_not_utf8_is_named(call: Call) -> None:
    raw = pa.array([b"a", b"b\xff"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    failed = call("publish", "orders", written("a.parquet", {"id": [1, 2], "name": broken}))
    assert failed.code != 0
    assert "a.parquet, row 2: column 'name' holds text that is not UTF-8" in " ".join(failed.err.split())


def test_a_batch_is_rejoined_whether_its_rows_came_as_columns_or_one_by_one(
    call: Call, orders: RedisMessageQueue
) -> None:
    path = written("a.parquet", {"id": list(range(2500))})
    assert call("publish", "orders", path, "--batch-id", "june").code == 0
    ids = itertools.count()
    reports = orders.publish_chunks(({"id": next(ids)} for _ in range(2500)), batch_id="june")
    assert sum(report.accepted for report in reports) == 2500
    assert orders.depth().pending == 2500


def test_only_what_needs_dicts_gets_them(publishing: Publishing) -> None:
    path = written("a.parquet", {"id": list(range(10))})
    kinds = [
        {type(one) for one in reader_of(path).messages(publishing)},
        {type(one) for one in reader_of(path).messages(publishing.keyed_by("id"))},
        {type(one) for one in reader_of(path).messages(publishing.keyed_by(lambda row: str(row["id"])))},
        {type(one) for one in reader_of(path, transform=lambda row: row).messages(publishing)},
    ]
    assert kinds == [{EncodedRows}, {EncodedRows}, {dict}, {dict}]
