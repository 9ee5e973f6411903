"""The streaming source in Spark's order of calls, without Spark, on a real Redis."""

from __future__ import annotations

import json
import pickle
import re
import threading
from typing import Any

import pyarrow as pa
import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.ledger import parse_ranges
from sluicegate.errors import ConfigurationError, LeaseLostError, RedisUnavailableError
from sluicegate.heartbeat import scheduler
from sluicegate.lease import Lease, LeaseHeartbeat
from sluicegate.spark import _access
from sluicegate.spark._options import StreamOptions, options
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.leasing.manifest import Slice
from sluicegate.spark.streaming import epoch as _epoch
from sluicegate.spark.streaming.reader import StreamReader, ZeroArgumentStreamReader
from tests.draining.helpers import Numbers
from tests.spark.harness import ZERO_ARGUMENTS, Checkpoint, Killed, Query
from tests.support import state
from tests.support.waiting import wait_until


class OldDataSource(SluicegateDataSource):
    """As PySpark 4.0 and 4.1 see it."""

    def streamReader(self, schema: Any) -> Any:
        return ZeroArgumentStreamReader(StreamOptions.parse(self.options), schema)


class Sink:
    """What a query wrote: a batch that is written again overwrites."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[pa.Table]]] = []

    def __call__(self, batch: int, tables: list[pa.Table]) -> None:
        self.calls.append((batch, tables))

    def numbers(self) -> list[int]:
        """Return the numbers of each batch as it was written last."""
        return [n for tables in dict(self.calls).values() for n in _numbers(tables)]

    def rows(self, batch: int) -> list[list[dict[str, Any]]]:
        """Return the rows of each batch that was written."""
        return [
            [row for table in tables for row in table.to_pylist()] for number, tables in self.calls if number == batch
        ]


def _numbers(tables: list[pa.Table]) -> list[int]:
    return [json.loads(payload)["n"] for table in tables for payload in table["payload"].to_pylist()]


class Stream:
    """Queries of one consumer, each a process of its own as far as Redis can see."""

    def __init__(self, queue: RedisMessageQueue, consumer: str = "etl") -> None:
        self.queue = queue
        self.given = {**options(queue), "consumer": consumer, "pollWaitSeconds": "0"}
        self.checkpoint = Checkpoint()
        self.sink = Sink()
        self.run_class = Query

    def query(self, **more: Any) -> Query:
        given = {**self.given, **more.pop("given", {})}
        source = OldDataSource if more.get("dialect") == ZERO_ARGUMENTS else SluicegateDataSource
        checkpoint, sink = more.pop("checkpoint", self.checkpoint), more.pop("sink", self.sink)
        return self.run_class(source, given, checkpoint, sink, on_death=die, **more)

    def at_work(self, **more: Any) -> Query:
        """Return a query that has written a micro-batch and not acked it yet."""
        query = self.query(**more)
        assert query.trigger() is not None
        return query

    def run(self, **more: Any) -> list[int]:
        query = self.query(trigger="available now", **more)
        try:
            return query.run()
        finally:
            die(query.reader)

    def killed(self, after: str, run_class: type[Query] = Query, **more: Any) -> None:
        self.run_class = run_class
        with pytest.raises(Killed):
            self.run(kill_after=after, **more)
        self.run_class = Query

    def offsets(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.checkpoint.offsets.values()]


def die(reader: Any) -> None:
    """End the process: it sends no more heartbeats."""
    for lease in reader._consumer._held.values():
        lease.stop_heartbeat()


@pytest.fixture
def stream(queue: RedisMessageQueue) -> Stream:
    return Stream(queue)


def nothing_is_left(queue: RedisMessageQueue) -> bool:
    depth = queue.depth()
    return (depth.ready, depth.in_flight, depth.leases, depth.delayed, depth.dead) == (0, 0, 0, 0, 0)


def beaten_for() -> list[str]:
    """Return the leases of these queries that have a heartbeat; other tests may have left theirs."""
    beats = [watch.lease() for watch in list(scheduler()._due._watches.values())]
    return [beat.lease_id for beat in beats if isinstance(beat, LeaseHeartbeat) and beat.lease_id.startswith("etl/")]


def test_available_now_drains_what_is_ready_and_acks_everything(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(25)

    assert stream.run(given={"maxMessagesPerTrigger": "10"}) == [0, 1, 2]

    assert stream.sink.numbers() == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 25
    epoch = stream.offsets()[0]["e"]
    assert list(stream.checkpoint.offsets.values()) == [json.dumps({"c": "etl", "e": epoch, "n": n}) for n in (1, 2, 3)]
    assert beaten_for() == []


def test_what_comes_after_the_start_is_left_to_the_next_run(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(5)

    def publish_more(batch: int, tables: list[pa.Table]) -> None:
        stream.sink(batch, tables)
        queue.publish({"n": 100 + batch})

    assert stream.run(sink=publish_more, given={"maxMessagesPerTrigger": "2"}) == [0, 1, 2]
    assert stream.sink.numbers() == [0, 1, 2, 3, 4]
    assert queue.depth().ready == 3
    assert stream.run() == [3]
    assert stream.sink.numbers() == [0, 1, 2, 3, 4, 100, 101, 102]
    assert nothing_is_left(queue)


POINTS = ["latest", "offsets", "commit", "partitions", "read", "sink", "commits"]


class KilledLater(Query):
    """Dies in its second micro-batch."""

    def _dies(self, after: Any) -> None:
        if self._batch > 0:
            super()._dies(after)


@pytest.mark.parametrize("later", [False, True], ids=["first batch", "second batch"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_query_goes_on_where_it_was(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, point: str, later: bool
) -> None:
    expected = numbers(9)
    given = {"maxMessagesPerTrigger": "4"}
    stream.killed(point, run_class=KilledLater if later else Query, given=given)

    stream.run(given=given)

    assert sorted(stream.sink.numbers()) == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 9
    for batch in stream.checkpoint.offsets:
        first, *again = stream.sink.rows(batch)
        assert all(rows == first for rows in again)


def test_a_replayed_batch_has_the_same_rows_in_the_same_tasks(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(10)
    queue.claim(2, lease_id="elsewhere").nack()
    given = {"numPartitions": "3"}
    stream.killed("sink", given=given)
    numbers(5)

    stream.run(given=given)

    (first, first_tables), (second, second_tables) = stream.sink.calls[0], stream.sink.calls[1]
    assert (first, second) == (0, 0)
    assert [table.to_pylist() for table in first_tables] == [table.to_pylist() for table in second_tables]
    assert len(first_tables) == 3


def spread(stream: Stream, query: Query) -> list[Slice]:
    """Trigger once and give the partitions of the micro-batch."""
    planned: list[Slice] = []
    plan = query.reader.partitions

    def partitions(start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        found = plan(start, end)
        planned[:] = found
        return found  # type: ignore[no-any-return]

    query.reader.partitions = partitions
    query.trigger()
    return planned


def test_a_large_micro_batch_takes_several_leases_and_even_tasks(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    expected = numbers(25_000)
    query = stream.query(given={"maxMessagesPerTrigger": "24000", "numPartitions": "5"})

    slices = spread(stream, query)

    sizes = [[len(parse_ranges(slots)) for *_, slots in part.parts] for part in slices]
    assert sizes == [[4800], [4800], [400, 4400], [4800], [800, 4000]]
    assert stream.offsets()[0]["n"] == 3
    assert stream.sink.numbers() == expected[:24_000]
    query.trigger()
    assert stream.offsets()[1]["n"] == 4
    query.trigger()
    assert nothing_is_left(queue)
    assert stream.sink.numbers() == expected


def test_by_default_tasks_go_by_the_size_of_the_micro_batch(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(12_000)
    query = stream.query()
    assert [len(table) for table in trigger(stream, query)] == [3000] * 4
    numbers(900)
    assert [len(table) for table in trigger(stream, query)] == [900]
    die(query.reader)


def trigger(stream: Stream, query: Query) -> list[pa.Table]:
    assert query.trigger() is not None
    return stream.sink.calls[-1][1]


def test_a_bound_in_bytes_ends_a_micro_batch(stream: Stream, queue: RedisMessageQueue) -> None:
    queue.publish_many({"n": n, "filling": "x" * 1000} for n in range(200))
    query = stream.query(given={"maxBytesPerTrigger": "20000"})
    sizes = []
    while query.trigger() is not None:
        sizes.append(sum(len(table) for table in stream.sink.calls[-1][1]))
    assert sizes == [100, 19, 19, 19, 19, 19, 5]  # nothing is known of their size at first


def test_a_trigger_for_everything_ignores_the_limit(stream: Stream, queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(30)
    query = stream.at_work(trigger="once", given={"maxMessagesPerTrigger": "10"})
    assert len(stream.sink.numbers()) == 30
    die(query.reader)


def test_an_idle_query_answers_its_start_and_remembers_nothing(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(1)
    query = stream.query()
    assert query.trigger() == 0
    assert [query.trigger() for _ in range(3)] == [None] * 3
    assert nothing_is_left(queue)
    assert not [key for key in client.keys("*:closed:*") if b'"empty"' in client.get(key)]
    numbers(2)
    assert query.trigger() == 1
    assert [offset["n"] for offset in stream.offsets()] == [1, 2]
    die(query.reader)


def test_an_idle_query_waits_for_a_message_and_no_longer(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    query = stream.query(given={"pollWaitSeconds": "30"})
    answered = threading.Event()
    thread = threading.Thread(target=lambda: (query.trigger(), answered.set()))
    thread.start()
    numbers(1)
    assert answered.wait(20)
    thread.join()
    assert stream.sink.numbers() == [0]
    die(query.reader)


def test_a_paused_queue_ends_an_available_now_run(stream: Stream, queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(3)
    queue.pause()
    assert stream.run() == [0]
    queue.resume()
    assert stream.run() == [1]
    assert [len(tables) for _, tables in stream.sink.calls] == [0, 1]


def test_progress_tells_the_backlog(stream: Stream, queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)
    query = stream.query(given={"maxMessagesPerTrigger": "4"})
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    epoch = stream.offsets()[0]["e"]
    found = query.reader.reportLatestOffset()
    assert 0 <= found.pop("oldest_ready_age_ms") < 60_000
    assert found == {"c": "etl", "e": epoch, "n": 1, "ready": 6, "redelivered": 0}
    die(query.reader)


# ------------------------------------------------------------------ leases and time


def test_a_heartbeat_keeps_what_a_long_batch_works_on(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(5)

    def work_for_long(batch: int, tables: list[pa.Table]) -> None:
        (before,) = (score for _, score in client.zrange(queue.key.leases, 0, -1, withscores=True))
        wait_until(
            lambda: client.zrange(queue.key.leases, 0, -1, withscores=True)[0][1] > before + 600,
            "two heartbeats have come",
        )
        stream.sink(batch, tables)

    stream.run(sink=work_for_long, given={"leaseSeconds": "1"})

    assert stream.sink.numbers() == [0, 1, 2, 3, 4]
    assert state.counters(client, "orders")["acked"] == 5


def test_a_batch_that_others_got_since_is_told(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(4)
    stream.killed("read")
    state.expire(client, queue.name)
    while lease := queue.claim(10):
        lease.ack()
    numbers(2)

    with pytest.raises(LeaseLostError, match=r"consumer 'etl' of queue 'orders'.*failOnDataLoss=false"):
        stream.run()
    assert stream.sink.calls == []
    stream.run(given={"failOnDataLoss": "false"})

    assert [(batch, sum(map(len, tables))) for batch, tables in stream.sink.calls] == [(0, 0), (1, 2)]
    assert nothing_is_left(queue)


def test_a_lease_that_ran_out_without_a_taker_is_adopted(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(4)
    stream.killed("read")
    state.expire(client, queue.name)
    stream.run()
    assert stream.sink.numbers() == expected
    assert state.counters(client, "orders")["acked"] == 4


def test_what_was_claimed_behind_a_gap_and_never_planned_goes_back(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(40)
    stream.killed("latest", given={"maxMessagesPerTrigger": "5"}, run_class=KilledLater)
    epoch = stream.offsets()[0]["e"]
    assert [len(queue.claim(10, lease_id=f"etl/{epoch}/{number}")) for number in (3, 4)] == [10, 10]
    state.expire(client, queue.name, f"etl/{epoch}/3")
    queue.claim(1).release()
    assert queue.depth().in_flight == 5 + 10

    stream.run()

    assert sorted(stream.sink.numbers()) == expected
    assert [offset["n"] for offset in stream.offsets()][:2] == [1, 2]
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 40


def test_a_lease_that_is_lost_while_its_batch_waits_is_told(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(5)
    query = stream.query()
    consumer = query.reader._consumer
    claim = query.reader.latestOffset

    def claim_and_lose(start: dict[str, Any], limit: Any) -> dict[str, Any]:
        found: dict[str, Any] = claim(start, limit)
        state.expire(client, queue.name)
        queue.claim(1, lease_id="another").release()
        for lease in consumer._held.values():
            lease._heartbeat.beat()
        return found

    query.reader.latestOffset = claim_and_lose
    with pytest.raises(LeaseLostError, match="is no longer held"):
        query.trigger()
    assert stream.sink.calls == []
    die(query.reader)


def test_a_lease_that_ends_while_it_is_adopted_is_none(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(3)
    queue.claim(3, lease_id="gone").release()
    monkeypatch.setattr(_access, "read_lease", lambda *given: _access.LeaseView("open"))
    assert _epoch.adopt(queue, "gone", 60) is None
    assert (queue.depth().ready, queue.depth().in_flight) == (3, 0)


@pytest.mark.parametrize("killed_after", [None, "sink", "commits"])
def test_an_ack_that_fails_is_tried_again(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch, killed_after: str
) -> None:
    numbers(3)
    if killed_after:
        stream.killed(killed_after)
    query = stream.query()
    if killed_after != "commits":
        assert query.trigger() == 0
    with monkeypatch.context() as patch:

        def unreachable(self: Lease) -> None:
            raise RedisUnavailableError("Redis is away")

        patch.setattr(Lease, "ack", unreachable)
        assert query.trigger() is None
    assert queue.depth().in_flight == 3
    assert query.trigger() is None
    assert nothing_is_left(queue)
    assert beaten_for() == []


def test_while_redis_is_away_one_ack_is_tried_and_not_each(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.spark.streaming.microbatch.MAX_CLAIM_LIMIT", 5)
    numbers(20)
    query = stream.at_work()
    assert queue.depth().leases == 4
    tried = []
    with monkeypatch.context() as patch:

        def unreachable(self: Lease) -> None:
            tried.append(self.id)
            raise RedisUnavailableError("Redis is away")

        patch.setattr(Lease, "ack", unreachable)
        query.trigger()
    assert len(tried) == 1
    query.trigger()
    assert nothing_is_left(queue)


def test_the_planning_process_keeps_no_payloads(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = numbers(3)
    query = stream.at_work()
    (lease,) = query.reader._consumer._held.values()
    assert [message.payload for message in lease.messages] == [b""] * 3
    assert stream.sink.numbers() == expected
    query.trigger()
    assert nothing_is_left(queue)


def test_an_ack_that_comes_too_late_ends_no_query(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(3)
    query = stream.at_work()
    state.expire(client, queue.name)
    queue.claim(1).release()
    assert query.trigger() == 1
    assert query.trigger() is None
    assert sorted(stream.sink.numbers()) == [0, 0, 1, 1, 2, 2]
    assert nothing_is_left(queue)


# ------------------------------------------------------------------ the checkpoint


def test_a_deleted_commit_of_a_batch_that_is_not_acked_gives_the_same_rows(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(6)
    stream.killed("commits")
    stream.checkpoint.commits.clear()
    stream.run()
    first, second = stream.sink.rows(0)
    assert first == second
    assert len(first) == 6
    assert state.counters(client, "orders")["acked"] == 6


def test_a_deleted_commit_of_a_batch_that_was_acked_is_told(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(6)
    stream.run()
    stream.checkpoint.commits.clear()
    with pytest.raises(LeaseLostError, match="were acked"):
        stream.run()
    assert len(stream.sink.calls) == 1
    stream.run(given={"failOnDataLoss": "false"})
    assert stream.checkpoint.commits == {0}


def test_a_deleted_checkpoint_gets_what_is_in_flight_at_once(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(9)
    stream.killed("sink", given={"maxMessagesPerTrigger": "4"})
    first = stream.offsets()[0]["e"]
    stream.checkpoint = Checkpoint()
    stream.sink = Sink()

    stream.run(given={"maxMessagesPerTrigger": "4"})

    assert sorted(stream.sink.numbers()) == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 9
    assert stream.offsets()[0]["e"] > first


def test_a_checkpoint_from_an_older_state_is_told(stream: Stream, queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(6)
    stream.run(given={"maxMessagesPerTrigger": "2"})
    for batch in (1, 2):
        del stream.checkpoint.offsets[batch]
        stream.checkpoint.commits.discard(batch)
    numbers(3)
    with pytest.raises(LeaseLostError, match="the checkpoint is behind"):
        stream.run()
    stream.run(given={"failOnDataLoss": "false"})
    assert [offset["n"] for offset in stream.offsets()] == [1, 4]
    assert len(stream.sink.calls[-1][1][0]) == 3
    assert nothing_is_left(queue)


def test_a_checkpoint_of_any_older_state_goes_on_behind_what_was_acked(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.spark.streaming.consumer._MAX_LEASES", 5)
    numbers(9)
    stream.run(given={"maxMessagesPerTrigger": "1"})
    for batch in range(1, 9):
        del stream.checkpoint.offsets[batch]
        stream.checkpoint.commits.discard(batch)
    numbers(3)
    stream.killed("read", given={"failOnDataLoss": "false"})
    assert [offset["n"] for offset in stream.offsets()] == [1, 10]

    stream.run()

    assert len(stream.sink.rows(1)[-1]) == 3
    assert nothing_is_left(queue)


def test_a_lease_that_was_acked_behind_the_checkpoint_is_told(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(2)
    stream.run()
    epoch = stream.offsets()[0]["e"]
    numbers(2)
    queue.claim(2, lease_id=f"etl/{epoch}/2").ack()
    numbers(2)
    with pytest.raises(LeaseLostError, match=f"the checkpoint is behind: lease 'etl/{epoch}/2' was acked"):
        stream.run()
    stream.run(given={"failOnDataLoss": "false"})
    assert [offset["n"] for offset in stream.offsets()] == [1, 3]
    assert nothing_is_left(queue)


def test_a_checkpoint_of_another_consumer_is_refused(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(2)
    stream.run()
    with pytest.raises(ConfigurationError, match=r"of consumer 'etl', and the option consumer says 'other'"):
        stream.run(given={"consumer": "other"})


def test_all_data_of_redis_gone_no_epoch_comes_again(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(2)
    stream.run()
    client.flushall()
    numbers(2)
    stream.run()
    assert [offset["n"] for offset in stream.offsets()] == [1, 2]
    client.flushall()
    numbers(2)
    other = Stream(queue)
    other.run()
    assert other.offsets()[0]["e"] > stream.offsets()[0]["e"]


# ------------------------------------------------------------------ two queries


def test_a_second_query_fences_the_first_and_gets_its_messages_at_once(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    expected = numbers(8)
    first = stream.query(given={"maxMessagesPerTrigger": "4"})
    assert first.trigger() == 0
    second = Stream(queue)

    second.run()

    assert sorted(second.sink.numbers()) == expected
    numbers(3)
    with pytest.raises(ConfigurationError, match=r"consumer 'etl' of queue 'orders'.*a consumer of its own"):
        first.trigger()
    assert (queue.depth().ready, queue.depth().in_flight) == (3, 0)
    with pytest.raises(ConfigurationError, match="another streaming query was started"):
        stream.run()
    assert second.run() == [1]
    assert nothing_is_left(queue)


def test_a_fenced_query_lets_go_of_what_it_holds(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(4)
    first = stream.at_work()
    second = Stream(queue)
    monkeypatch.setattr("sluicegate.spark.streaming.consumer.release_older", lambda *given: 0)
    assert second.run() == [0]
    assert second.sink.numbers() == []
    monkeypatch.setattr(first.reader._consumer, "settle", lambda done: None)
    with pytest.raises(ConfigurationError):
        first.trigger()
    assert (queue.depth().ready, queue.depth().in_flight) == (4, 0)


def test_a_restart_fences_the_process_that_it_replaces(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(4)
    zombie = stream.query()
    zombie.trigger()
    numbers(2)

    stream.run()

    with pytest.raises(ConfigurationError, match="another streaming query"):
        zombie.trigger()
    assert state.counters(client, "orders")["acked"] == 6
    assert nothing_is_left(queue)


def test_a_process_that_lost_its_seat_while_it_waited_takes_nothing_from_the_other(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(2)
    zombie = stream.query()
    zombie.trigger()
    numbers(2)
    restarted = stream.query()
    claims = zombie.reader._consumer._queue.claim

    def claim_too_late(*args: Any, **options: Any) -> Lease:
        if not restarted.reader._consumer._held:
            assert restarted.trigger() == 1
        return claims(*args, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(zombie.reader._consumer._queue, "claim", claim_too_late)
    with pytest.raises(ConfigurationError, match="another streaming query"):
        zombie.trigger()
    (lease,) = restarted.reader._consumer._held.values()
    lease.extend()
    assert restarted.trigger() is None
    assert stream.sink.numbers() == [0, 1, 0, 1]
    assert nothing_is_left(queue)


def test_a_claim_that_a_dead_process_made_late_is_taken_over(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(2)
    query = stream.at_work()
    numbers(2)
    queue.claim(2, lease_id=f"etl/{stream.offsets()[0]['e']}/2")
    assert query.trigger() == 1
    assert query.trigger() is None
    assert nothing_is_left(queue)


def test_queries_with_consumers_of_their_own_share_a_queue(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    expected = numbers(9)
    other = Stream(queue, "x" * 100)
    queries = [each.query(given={"maxMessagesPerTrigger": "3"}) for each in (stream, other)]
    while [query.trigger() for query in queries] != [None, None]:
        pass
    assert sorted(stream.sink.numbers() + other.sink.numbers()) == expected
    assert len(stream.sink.numbers()) in (3, 6)
    assert nothing_is_left(queue)


# ------------------------------------------------------------------ Spark 4.0 and 4.1


def test_the_old_dialect_acks_the_last_batch_with_an_empty_one(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(9)
    query = stream.query(dialect=ZERO_ARGUMENTS, given={"maxMessagesPerTrigger": "4"})
    query.run()
    assert stream.sink.numbers() == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 9
    assert query.trigger() is None
    numbers(1)
    query.run()
    assert stream.sink.numbers() == [*expected, 0]
    assert nothing_is_left(queue)


@pytest.mark.parametrize("later", [False, True], ids=["first batch", "second batch"])
@pytest.mark.parametrize("point", POINTS)
def test_the_old_dialect_goes_on_where_it_was_killed(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, point: str, later: bool
) -> None:
    expected = numbers(9)
    given = {"maxMessagesPerTrigger": "4"}
    if later:
        stream.run_class = KilledLater
    with pytest.raises(Killed):
        stream.query(dialect=ZERO_ARGUMENTS, given=given, kill_after=point).run()
    stream.run_class = Query

    query = stream.query(dialect=ZERO_ARGUMENTS, given=given)
    query.run()

    assert sorted(stream.sink.numbers()) == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 9
    die(query.reader)


def test_available_now_of_the_old_dialect_is_one_batch_that_the_next_run_acks(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    expected = numbers(9)
    given = {"maxMessagesPerTrigger": "4"}
    assert stream.run(dialect=ZERO_ARGUMENTS, given=given) == [0]
    assert (queue.depth().ready, queue.depth().in_flight) == (5, 4)
    assert stream.run(dialect=ZERO_ARGUMENTS, given=given) == [1]
    assert (queue.depth().ready, queue.depth().in_flight) == (1, 4)
    stream.run(dialect=ZERO_ARGUMENTS, given=given)
    stream.run(dialect=ZERO_ARGUMENTS, given=given)
    assert stream.sink.numbers() == expected
    assert nothing_is_left(queue)


def test_a_query_of_the_old_dialect_is_fenced_as_well(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(4)
    stream.run(dialect=ZERO_ARGUMENTS)
    Stream(queue).run()
    with pytest.raises(ConfigurationError, match="another streaming query was started"):
        stream.run(dialect=ZERO_ARGUMENTS)


# ------------------------------------------------------------------ what is serialized


def test_a_reader_travels_without_leases_and_secrets(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(2)
    query = stream.at_work()
    text = pickle.dumps(query.reader)
    assert b"enqueued" in text  # the schema
    assert len(text) < 3000
    assert not re.search(rb"Consumer|Lease", text)
    assert "_consumer" not in vars(pickle.loads(text))  # noqa: S301  (its own)
    die(query.reader)


def test_a_reader_of_partitions_changes_nothing(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(5)
    query = stream.query(kill_after="partitions")
    with pytest.raises(Killed):
        query.trigger()
    reader: StreamReader = query.reader
    (part,) = reader.partitions(stream_start(), stream.offsets()[0])
    before = state.dumps(client)
    first, second = ([batch.to_pylist() for batch in reader.read(part)] for _ in range(2))
    assert first == second
    assert state.dumps(client) == before


def stream_start() -> dict[str, Any]:
    return {"c": "etl", "e": 0, "n": 0}


def test_the_messages_of_a_lost_lease_are_not_read(
    stream: Stream, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(5)
    query = stream.query(kill_after="partitions")
    with pytest.raises(Killed):
        query.trigger()
    (part,) = query.reader.partitions(stream_start(), stream.offsets()[0])
    ((lease_id, *_),) = part.parts
    state.expire(client, queue.name)
    queue.claim(1).release()
    assert _access.read_lease(queue, lease_id).state == "ended"
    reported = "another query was started with consumer 'etl', or this one was silent for longer than leaseSeconds=600"
    with pytest.raises(LeaseLostError, match=f"^lease '{lease_id}' of queue 'orders' expired.*; either {reported}"):
        list(query.reader.read(part))
