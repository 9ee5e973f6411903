"""What happens to a chunk whose handler raises."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import redis
import tenacity

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.context import DrainContext
from sluicegate.draining.summary import DrainSummary
from tests.draining.helpers import Numbers, Output, drain_here, failing_on
from tests.support import state
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until


def failing_always(batch: list[int], ctx: DrainContext) -> None:
    raise ConnectionError("the database is away")


def numbers_of(values: list[bytes]) -> list[int]:
    return sorted(Message(value).json()["n"] for value in values)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([0], id="first"),
        pytest.param([999], id="last"),
        pytest.param([417], id="middle"),
        pytest.param([*range(10)], id="ten in a row at the head"),
        pytest.param([*range(100, 160)], id="sixty in a row"),
        pytest.param([*range(0, 1000, 50)], id="every fiftieth"),
    ],
)
def test_only_the_failing_messages_come_back_and_all_others_are_acked(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis, bad: list[int]
) -> None:
    everything = numbers(1000)

    summary = drain_here(queue, output.writer(failing_on(*bad)))

    assert (summary.acked, summary.returned, summary.buried) == (1000 - len(bad), len(bad), 0)
    assert output.numbers() == [n for n in everything if n not in bad]
    contents = state.contents(client, "orders")
    assert numbers_of(contents.delayed) == bad
    assert (contents.pending, contents.returned, contents.in_flight) == ([], [], [])
    assert [failure.messages for failure in summary.failures] == [1] * len(bad)


def test_one_failing_message_among_a_thousand_costs_about_twice_log2_calls(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(1000)

    drain_here(queue, output.writer(failing_on(417)))

    assert len(output.calls()) <= 2 * 10 + 1


def test_a_failing_message_is_listed_with_its_id_and_error_and_stays_out_of_reach_for_a_second(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(8)
    ids: dict[int, str] = {}

    def process(batch: list[Message]) -> None:
        ids.update({message.json()["n"]: message.id for message in batch})
        if 5 in [message.json()["n"] for message in batch]:
            raise LookupError("\ud800" + "x" * 2000)

    summary = drain_here(queue, process, partition=2)

    (failure,) = summary.failures
    assert (failure.partition, failure.chunk, failure.message_ids) == (2, 0, (ids[5],))
    assert (failure.error_type, failure.error, failure.buried) == ("LookupError", "?" + "x" * 499, False)
    assert failure.where.startswith("test_bisect.py:")
    assert failure.where.endswith(" in process")
    (_, due_ms) = client.zrange(queue.key.delayed, 0, -1, withscores=True)[0]
    seconds, micros = client.time()
    assert 0 < due_ms / 1000 - (seconds + micros / 1e6) <= 2


def test_parts_have_keys_of_their_own_by_slots(queue: RedisMessageQueue, numbers: Numbers, output: Output) -> None:
    numbers(8)

    drain_here(queue, output.writer(failing_on(2)))

    calls = {call["key"].partition("-")[2]: call["numbers"] for call in output.calls()}
    assert calls == {
        "": [0, 1, 2, 3, 4, 5, 6, 7],
        "1-4": [0, 1, 2, 3],
        "1-2": [0, 1],
        "3-4": [2, 3],
        "3-3": [2],
        "4-4": [3],
        "5-8": [4, 5, 6, 7],
    }
    assert len({call["key"][:32] for call in output.calls()}) == 1


def test_all_verdicts_of_a_lease_go_in_one_call(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(100)
    client.config_resetstat()

    drain_here(queue, output.writer(failing_on(3, 50, 97)))

    # Two claims (the chunk and the empty one), a settle, before it a note of what goes back, and a look whether an
    # earlier drain left anything behind the empty chunk.
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] + stats.get("cmdstat_eval", {"calls": 0})["calls"] == 5


def test_a_handler_that_fails_at_everything_is_given_up_and_loses_nothing(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(1500)

    summary = drain_here(queue, output.writer(failing_always))

    assert summary.ended == "failing"
    assert (summary.claimed, summary.acked, summary.returned, summary.buried) == (1000, 0, 1000, 0)
    assert len(output.calls()) == 2 * 10
    depth = queue.depth()
    assert (depth.pending, depth.delayed, depth.in_flight, depth.dead) == (500, 1000, 0, 0)
    assert sum(failure.messages for failure in summary.failures) == 1000
    assert all(len(failure.message_ids) <= 10 for failure in summary.failures)


def test_an_outage_in_the_middle_of_a_chunk_is_given_up_and_what_was_done_stays_acked(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(1000)
    left = 3

    def fail_after_some_calls(batch: list[int], ctx: DrainContext) -> None:
        nonlocal left
        if len(batch) > 300 or left == 0:
            raise ConnectionError("away")
        left -= 1

    summary = drain_here(queue, output.writer(fail_after_some_calls))

    assert summary.acked == len(output.numbers()) == 750
    assert summary.returned == 250
    assert len(output.calls()) < 4 + 3 + 5 * 10


@pytest.mark.parametrize(("count", "bad"), [(1, [0]), (2, [0]), (2, [1]), (2, [0, 1]), (3, [0]), (3, [0, 1])])
def test_small_chunks_are_searched_to_the_end(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, count: int, bad: list[int]
) -> None:
    everything = numbers(count)

    summary = drain_here(queue, output.writer(failing_on(*bad)))

    assert (summary.acked, summary.returned, summary.ended) == (count - len(bad), len(bad), "empty")
    assert output.numbers() == [n for n in everything if n not in bad]


def test_a_failing_message_at_its_last_delivery_is_buried_with_the_error(
    server: RedisServer, make_queue: MakeQueue, output: Output
) -> None:
    queue = make_queue(url=server.url, max_delivery_count=1)
    queue.publish_many({"n": n} for n in range(8))

    first = drain_here(queue, output.writer(failing_on(5)))
    again = drain_here(queue, output.writer(failing_on(5)))

    for summary in (first, again):  # what is buried is counted as buried, also by a repetition
        assert (summary.acked, summary.returned, summary.buried) == (7, 0, 1)
    assert [failure.buried for failure in first.failures] == [True]
    (dead,) = queue.peek(state="dead")
    assert dead.message is not None
    assert (dead.message.json(), dead.reason) == ({"n": 5}, "max_delivery_count")
    assert (dead.error_type, dead.error) == ("ValueError", "cannot work on 5")


def test_a_handler_that_fails_at_everything_buries_nobody_not_even_at_the_last_delivery(
    server: RedisServer, make_queue: MakeQueue, output: Output
) -> None:
    queue = make_queue(url=server.url, max_delivery_count=1)
    queue.publish_many({"n": n} for n in range(100))

    summary = drain_here(queue, output.writer(failing_always))

    assert (summary.returned, summary.buried, queue.depth().dead, queue.depth().delayed) == (100, 0, 0, 100)
    assert not any(failure.buried for failure in summary.failures)


@pytest.mark.parametrize(("batch_size", "together"), [(4, 1), (40, 10)])  # a quarter of the limit after one failure
def test_messages_that_failed_before_do_not_keep_a_drain_from_what_waits_behind_them(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, batch_size: int, together: int
) -> None:
    numbers(60)
    queue.claim(10).nack()

    summary = drain_here(queue, output.writer(failing_on(*range(10))), batch_size=batch_size)

    assert (summary.ended, summary.acked, summary.returned) == ("empty", 50, 10)
    assert len(output.calls()[0]["numbers"]) == together


def test_every_success_renews_the_patience_with_messages_that_failed_before(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(68)
    queue.claim(30).nack()

    def let_more_fail(batch: list[int], ctx: DrainContext) -> None:
        if batch[0] == 30:
            queue.claim(30, lease_id="more").nack()
        elif 0 <= batch[0] < 30 or 34 <= batch[0] < 64:
            raise ValueError("bad")

    summary = drain_here(queue, output.writer(let_more_fail), batch_size=4)

    assert (summary.ended, summary.acked, summary.returned) == ("empty", 8, 60)


def test_a_run_ends_when_only_what_keeps_failing_is_left(
    server: RedisServer, make_queue: MakeQueue, output: Output
) -> None:
    queue = make_queue(url=server.url, max_delivery_count=None)
    queue.publish_many({"n": n} for n in range(200))
    queue.claim(200).nack()

    summary = drain_here(queue, output.writer(failing_always), batch_size=4)  # at most one in a chunk: 4 // 4

    assert summary.ended == "failing"
    assert len(output.calls()) == 50
    assert queue.depth().in_flight == 0


def test_what_a_run_gave_back_does_not_return_within_a_second(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(20)

    summary = drain_here(queue, output.writer(failing_on(0)), batch_size=5)

    assert [n for call in output.calls() for n in call["numbers"] if call["chunk"] > 0] == [*range(5, 20)]
    assert (summary.ended, queue.depth().delayed) == ("empty", 1)
    wait_until(lambda: queue.depth().due == 1, "it is due again")


def test_all_misfits_are_counted_where_only_a_hundred_are_listed(queue: RedisMessageQueue) -> None:
    queue.publish_many({"n": "x" if n < 150 else n} for n in range(1000))

    summary = drain_here(queue, lambda table: None, schema=pa.schema([("n", pa.int64())]))

    assert (summary.acked, summary.returned, summary.failed, len(summary.failures)) == (850, 150, 150, 100)


def test_a_summary_can_travel_as_json_and_names_no_payload(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(8)

    def process(batch: list[Message]) -> None:
        if any(message.json()["n"] == 3 for message in batch):
            raise ValueError("wrong")

    partition = drain_here(queue, process)
    summary = DrainSummary("run", "orders", (partition,), 1.5)

    found: dict[str, Any] = json.loads(json.dumps(summary.to_dict()))
    assert {name: found[name] for name in ("run_id", "queue", "claimed", "acked", "returned", "buried", "seconds")} == {
        "run_id": "run", "queue": "orders", "claimed": 8, "acked": 7, "returned": 1, "buried": 0, "seconds": 1.5,
    }  # fmt: skip
    assert found["partitions"][0]["chunks"] == 1
    assert found["failures"] == [
        {
            "partition": 0, "chunk": 0, "messages": 1, "message_ids": list(summary.failures[0].message_ids),
            "buried": False, "error_type": "ValueError", "error": "wrong", "where": summary.failures[0].where,
        }
    ]  # fmt: skip
    assert '"n"' not in json.dumps(found)
    sentence = summary.describe_failures()
    assert "1 of 1 partitions" in sentence
    assert "1 ValueError" in sentence
    assert "wrong" not in sentence


@pytest.mark.parametrize(("on_error", "dead", "acked"), [("bury", 1, 3), ("discard", 0, 4)])
def test_a_failing_message_becomes_what_the_queue_says_of_errors(
    server: RedisServer, make_queue: MakeQueue, client: redis.Redis, on_error: Any, dead: int, acked: int
) -> None:
    queue = make_queue(url=server.url, on_error=on_error)
    queue.publish_many({"n": n} for n in range(4))

    def process(batch: list[Message]) -> None:
        if any(message.json()["n"] == 1 for message in batch):
            raise ValueError("one")

    summary = drain_here(queue, process)

    assert (summary.acked, summary.returned, summary.buried) == (acked, 0, dead)
    assert [(failure.messages, failure.buried) for failure in summary.failures] == [(1, bool(dead))]
    assert [(letter.reason, letter.error) for letter in queue.peek(state="dead")] == [("handler_error", "one")] * dead
    assert state.counters(client, "orders").get("discarded", 0) == 1 - dead


@pytest.mark.parametrize("on_error", ["bury", "discard"])
def test_a_handler_that_fails_at_everything_loses_nothing_whatever_the_queue_says_of_errors(
    server: RedisServer, make_queue: MakeQueue, on_error: Any
) -> None:
    queue = make_queue(url=server.url, on_error=on_error)
    queue.publish_many({"n": n} for n in range(100))

    def process(batch: list[Message]) -> None:
        raise ConnectionError("away")

    summary = drain_here(queue, process)

    assert (summary.ended, summary.returned, queue.depth().delayed) == ("failing", 100, 100)


def test_culprits_and_nacks_stay_out_of_reach_as_long_as_the_queue_says(
    server: RedisServer, make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(url=server.url, retry_backoff=tenacity.wait_fixed(500))
    queue.publish_many({"n": n} for n in range(4))

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.nack([message for message in batch if message.json()["n"] == 3])
        if any(message.json()["n"] == 1 for message in batch):
            raise ValueError("one")

    drain_here(queue, process)

    seconds, _ = client.time()
    due = [at / 1000 - seconds for _, at in client.zrange(queue.key.delayed, 0, -1, withscores=True)]
    assert len(due) == 2
    assert all(490 < left < 502 for left in due)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_that_cannot_tell_its_text_is_an_error_like_others(server: RedisServer, make_queue: MakeQueue) -> None:
    queue = make_queue(url=server.url, max_delivery_count=1)
    queue.publish_many({"n": n} for n in range(4))

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.bury([message for message in batch if message.json()["n"] == 3], error=Mute())
        if any(message.json()["n"] == 1 for message in batch):
            raise Mute

    summary = drain_here(queue, process)

    assert (summary.acked, summary.buried) == (2, 2)
    reported = "(its text cannot be shown: RuntimeError)"
    assert [(failure.error_type, failure.error) for failure in summary.failures] == [("Mute", reported)]
    assert [(dead.error_type, dead.error) for dead in queue.peek(state="dead")] == [("Mute", reported)] * 2
