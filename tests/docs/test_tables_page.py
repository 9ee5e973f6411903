"""The code of the page about tables does what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.support.snippets import snippet


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "page", "exec", dont_inherit=True), names)  # noqa: S102  (it is ours)
    return names


def test_a_table_is_published_with_keys_of_its_own(client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    with RedisMessageQueue("orders", client=client) as queue:
        run(snippet("publish-table"), queue=queue)
        assert capsys.readouterr().out == "2 published, 1 refused\n"
        with queue.claim(10) as lease:
            assert [(message.payload, message.headers) for message in lease.messages] == [
                (b'{"order_id":"A-1","amount":12.5,"lines":[1,2]}', {"source": "warehouse"}),
                (b'{"order_id":"A-2","amount":3.0,"lines":[]}', {"source": "warehouse"}),
            ]


def test_a_parquet_file_is_published_as_a_batch(client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"order_id": list(range(2500))}), path)
    with RedisMessageQueue("orders", client=client) as queue:
        for _ in range(2):
            assert run(snippet("publish-parquet"), queue=queue, path=path, pa=pa)["report"].accepted == 2500
        assert queue.depth().pending == 2500
        assert queue.get_batch("import orders.parquet").status().total == 2500
