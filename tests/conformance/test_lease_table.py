"""A lease becomes an Arrow table, also where its messages wait in blocks."""

from __future__ import annotations

import json

import redis

from sluicegate.tables.arrow import to_table
from tests.support.blocks import pack_pending
from tests.support.flavours import MakeQueue


def test_a_table_of_a_lease_of_blocks_has_all_rows(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="id", deduplication_policy="until_acked")
    queue.publish_many(({"id": number} for number in range(600)), headers={"from": "tests"})
    assert pack_pending(client, "orders") == 3

    lease = queue.claim(550)
    table = to_table(lease.leased)

    assert [json.loads(payload)["id"] for payload in table.column("payload").to_pylist()] == list(range(550))
    assert table.column("deduplication_key").to_pylist() == [str(number) for number in range(550)]
    assert table.column("headers").to_pylist() == [[("from", "tests")]] * 550
    lease.ack()
