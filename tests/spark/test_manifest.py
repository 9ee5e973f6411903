"""Manifests are small, split by slots, and read alike until a message is gone; the error then says which and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.sql.types import StructType

from sluicegate import RedisMessageQueue
from sluicegate.errors import LeaseLostError
from sluicegate.lease import Lease
from sluicegate.spark._options import options
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.leasing.manifest import Part, cut, dump, load
from tests.draining.helpers import Numbers
from tests.spark.harness import Load
from tests.support import state

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.spark
N = StructType().add("n", "long")


def reading(queue: RedisMessageQueue, *parts: Part, schema: StructType | None = N, **more: str) -> Load:
    return Load(SluicegateDataSource, {**options(queue), "manifest": dump(parts), **more}, schema)


def whole(lease: Lease) -> Part:
    return Part(lease.id, lease.opening, lease.unsettled)


def numbers_in(load: Load) -> list[int]:
    found: list[int] = load.collect().column("n").to_pylist()
    return found


def expire(client: redis.Redis, queue: RedisMessageQueue, lease: Lease) -> None:
    state.expire(client, queue.name, lease.id)
    queue.claim(1).release()


def test_a_manifest_comes_back_as_it_was_written() -> None:
    parts = [
        Part("run/0", "1-1", range(1, 10_001)),
        Part("run/1", "2-2", range(2, 10_001, 2)),
        Part("run/12", "3-3", [1]),
        Part("run/13", "4-4", [7, 10_000]),
    ]
    assert [(one.lease_id, one.opening, list(one.slots)) for one in load(dump(parts))] == [
        (one.lease_id, one.opening, list(one.slots)) for one in parts
    ]
    assert load(dump([])) == []
    assert [one.lease_id for one in load(dump([Part("a/0", "1-1", [1]), Part("b", "1-1", [1])]))] == ["a/0", "b"]


def test_a_million_messages_take_a_few_kilobytes_and_a_scattered_rest_little_more() -> None:
    assert len(dump([Part(f"run/{n}", f"1764317000000000-{n}0000", range(1, 10_001)) for n in range(100)])) < 5000
    primes = [n for n in range(2, 10_000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert len(dump([Part("run/0", "1764317000000000-10000", primes)])) < 1700


@pytest.mark.parametrize(
    ("sizes", "partitions", "expected"),
    [
        ([], None, [0]),
        ([1], None, [1]),
        ([2500], None, [2500]),
        ([10_000], None, [2500] * 4),
        ([10_000] * 6, None, [10_000] * 6),
        ([7, 3], 4, [3, 3, 3, 1]),
        ([2], 8, [1, 1]),
        ([10, 10, 10], 1, [30]),
    ],
)
def test_partitions_are_of_one_size(sizes: list[int], partitions: int | None, expected: list[int]) -> None:
    parts = [Part(f"run/{n}", "1-1", range(1, size + 1)) for n, size in enumerate(sizes)]
    slices = cut(parts, partitions)

    def slots(pieces: Sequence[tuple[str, str, str]]) -> list[tuple[str, int]]:
        return [(name, slot) for name, opening, ranges in pieces for slot in _ranges(ranges)]

    assert [len(slots(one.parts)) for one in slices] == expected
    assert [pair for one in slices for pair in slots(one.parts)] == [
        (part.lease_id, slot) for part in parts for slot in part.slots
    ], "each once, in claim order"


def _ranges(text: str) -> list[int]:
    pairs = (part.partition("-")[::2] for part in text.split(","))
    return [slot for first, last in pairs for slot in range(int(first), int(last or first) + 1)]


def test_every_read_gives_the_same_rows_and_changes_nothing(queue: RedisMessageQueue, numbers: Numbers) -> None:
    wanted = numbers(25)
    leases = [queue.claim(10) for _ in range(3)]
    for lease in leases:
        lease.stop_heartbeat()
    before = queue.stats()
    table = reading(queue, *map(whole, leases), numPartitions="4")

    assert len(table.plan()) == 4
    assert numbers_in(table) == wanted
    assert (
        table.read(1, attempt=2).column("n").to_pylist() == table.read(1).column("n").to_pylist() == list(range(7, 14))
    )
    assert numbers_in(table) == wanted
    assert queue.stats() == before

    messages = reading(queue, *map(whole, leases), schema=None).collect()
    assert messages.column("id").to_pylist() == [message.id for lease in leases for message in lease.messages]
    assert set(messages.column("delivery_count").to_pylist()) == {1}


def test_large_messages_are_read_in_several_looks(queue: RedisMessageQueue) -> None:
    queue.publish_many({"n": n, "ballast": "x" * 900_000} for n in range(9))
    lease = queue.claim(9)

    batches = list(reading(queue, whole(lease)).begin(0))

    assert len(batches) == 2, "of 4 MiB each"
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(9))


def test_a_part_may_have_gaps(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)
    lease = queue.claim(10)
    lease.ack([lease.messages[at] for at in (0, 3, 4, 9)])

    assert numbers_in(reading(queue, whole(lease), numPartitions="2")) == [1, 2, 5, 6, 7, 8]


def test_an_empty_manifest_is_an_empty_table(queue: RedisMessageQueue) -> None:
    table = reading(queue)
    assert len(table.plan()) == 1
    assert numbers_in(table) == []


def test_a_read_of_what_has_a_verdict_says_what_to_do(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)
    lease = queue.claim(10, lease_id="r/0")
    table = reading(queue, whole(lease))
    lease.ack(lease.messages[4:6])

    with pytest.raises(LeaseLostError, match=r"2 messages of lease 'r/0' of queue 'orders' have their verdict.*again"):
        table.collect()
    lease.ack(lease.messages[6:])
    with pytest.raises(LeaseLostError, match="6 messages of lease 'r/0'"):
        table.collect()


@pytest.mark.parametrize(
    ("end", "reported"),
    [
        (lambda lease, _: lease.ack(), "was acked; read before ack"),
        (lambda lease, _: lease.release(), "was released to the queue; read inside the block"),
        (lambda lease, expires: expires(lease), "expired or was taken over by another run.* start a new batch"),
    ],
    ids=["acked", "released", "expired"],
)
def test_a_read_of_a_lease_that_ended_says_how_and_what_to_do(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, end: Any, reported: str
) -> None:
    numbers(4)
    lease = queue.claim(4, lease_id="r/0")
    table = reading(queue, whole(lease))
    table.collect()

    end(lease, lambda one: expire(client, queue, one))
    with pytest.raises(LeaseLostError, match=f"^lease 'r/0' of queue 'orders' {reported}"):
        table.collect()

    numbers(4)
    queue.claim(4, lease_id="r/0")  # opened anew, but for one that was acked: other messages in the same slots
    with pytest.raises(LeaseLostError, match=r"^lease 'r/0' of queue 'orders' "):
        table.collect()


def test_a_takeover_does_not_disturb_a_reader(queue: RedisMessageQueue, numbers: Numbers) -> None:
    wanted = numbers(4)
    table = reading(queue, whole(queue.claim(4, lease_id="r/0")))
    assert queue.claim(4, lease_id="r/0", take_over_after_seconds=0).takeovers == 1
    assert numbers_in(table) == wanted
