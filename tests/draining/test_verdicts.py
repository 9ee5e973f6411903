"""What a handler says of single messages, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.context import DrainContext
from sluicegate.draining.summary import DrainSummary
from sluicegate.draining.verdicts import MessageVerdict, VerdictCollector, VerdictError
from tests.draining.helpers import Numbers, Process, drain_here
from tests.support import state
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer


def message(number: int) -> Message:
    return Message(b"1" + b"0" * 28 + f"id-{number}\x1f\x1f\x1fp".encode(), slot=number + 1, deliveries_begun=1)


BATCH = [message(number) for number in range(4)]


def verbs(words: dict[int, MessageVerdict]) -> dict[int, str]:
    return {slot - 1: word.verb for slot, word in words.items()}


# ------------------------------------------------------------------ how verdicts are said


@pytest.mark.parametrize(
    "what",
    [
        BATCH[1:3],
        ["id-1", "id-2"],
        ("id-1", BATCH[2]),
        (item for item in BATCH[1:3]),
        pa.array(["id-1", "id-2"]),
        pa.chunked_array([["id-1"], ["id-2"]]),
        pd.Series(["id-1", "id-2"], index=[7, 8]),
        pa.table({"id": ["id-1", "id-2"], "more": [1, 2]}),
        pa.record_batch({"id": ["id-1", "id-2"]}),
        pa.table({"id": [10, 20], "message_id": ["id-1", "id-2"]}),  # `id` is a field of the payload
        pd.DataFrame({"id": ["id-1", "id-2"]}),
    ],
    ids=lambda what: type(what).__name__,
)
def test_messages_are_named_in_many_ways(what: Any) -> None:
    collector = VerdictCollector(BATCH)

    collector.add(what, MessageVerdict("nack"))

    assert verbs(collector.close()) == {1: "nack", 2: "nack"}


@pytest.mark.parametrize("what", ["id-3", BATCH[3]])
def test_one_message_is_named_by_itself(what: Any) -> None:
    collector = VerdictCollector(BATCH)

    collector.add(what, MessageVerdict("bury"))

    assert verbs(collector.close()) == {3: "bury"}


@pytest.mark.parametrize(
    "result",
    [
        [None, "nack", "ack", "bury"],
        (None, "nack", "ack", "bury"),
        pa.array([None, "nack", "ack", "bury"]),
        pa.chunked_array([[None, "nack"], ["ack", "bury"]]),
        pd.Series([None, "nack", "ack", "bury"]),
        pd.Series([pd.NA, "nack", "ack", "bury"], dtype="string"),
        pd.Series([float("nan"), "nack", "ack", "bury"]),
        pa.table({"id": ["id-3", "id-1", "id-2"], "verdict": ["bury", "nack", "ack"]}),
        pd.DataFrame({"message_id": ["id-3", "id-1", "id-2"], "verdict": ["bury", "nack", "ack"]}),
        pd.DataFrame(
            {"id": ["id-0", "id-3", "id-1", "id-2"], "verdict": [None, "bury", "nack", "ack"], "error": [None] * 4}
        ),
    ],
    ids=lambda result: type(result).__name__,
)
def test_verdicts_are_returned_by_position_or_by_id(result: Any) -> None:
    assert verbs(VerdictCollector(BATCH).close(result)) == {1: "nack", 2: "ack", 3: "bury"}


def test_a_returned_table_may_tell_errors_and_delays() -> None:
    table = pd.DataFrame(
        {"id": ["id-0", "id-1"], "verdict": ["nack", "nack"], "error": ["late", None], "delay_seconds": [2.5, None]}
    )

    words = VerdictCollector(BATCH).close(table)

    assert words == {1: MessageVerdict("nack", 2.5, "late"), 2: MessageVerdict("nack", None, None)}


@pytest.mark.parametrize("verb", ["nack", "release", "bury", "ack"])
def test_one_returned_verdict_is_for_the_whole_batch(verb: str) -> None:
    assert verbs(VerdictCollector(BATCH).close(verb)) == dict.fromkeys(range(4), verb)


def test_nothing_returned_is_no_verdict() -> None:
    assert VerdictCollector(BATCH).close(None) == {}


@pytest.mark.parametrize(
    "result",
    [3, 0.5, True, False, {"id-0": "nack"}, {"nack"}, b"nack", BATCH[0], np.float64(3), np.array("nack"), object()],
    ids=lambda result: type(result).__name__,
)
def test_what_is_no_verdict_is_an_error_and_not_an_ack(result: Any) -> None:
    with pytest.raises(VerdictError, match=f"process returned a {type(result).__name__}, which is no verdict"):
        VerdictCollector(BATCH).close(result)


@pytest.mark.parametrize("word", ["nak", "", "NACK"])
def test_a_word_that_is_no_verdict_is_shown(word: str) -> None:
    with pytest.raises(ValueError, match=f"'ack', 'nack', 'release', 'bury' or None, not '{word}'"):
        VerdictCollector(BATCH).close(word)


def test_a_long_text_is_not_shown() -> None:
    with pytest.raises(ValueError, match="not a str") as caught:
        VerdictCollector(BATCH).close("a payload, for what we know")
    assert "payload" not in str(caught.value)


def test_returned_verdicts_add_to_those_of_the_context() -> None:
    collector = VerdictCollector(BATCH)
    collector.add(BATCH[0], MessageVerdict("bury"))

    assert verbs(collector.close([None, "nack", "ack", None])) == {0: "bury", 1: "nack", 2: "ack"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (["ack"], "1 verdicts for 4 messages"),
        (["ack", "ack", "ack", "done"], "'done'"),
        ([1, 2, 3, 4], "not a int"),
        (pa.table({"id": ["id-0"]}), "without a column 'verdict'"),
        (pa.table({"verdict": ["ack"]}), "column 'message_id' or 'id'"),
        (pa.table({"id": ["id-9"], "verdict": ["ack"]}), "a message that is not of this batch; .*'message_id'"),
        (pa.table({"id": ["id-1", "id-1"], "verdict": ["ack", "nack"]}), "has the verdict"),
        (pa.table({"id": ["id-0"], "verdict": ["nack"], "delay_seconds": [-1.0]}), "delay_seconds"),
    ],
)
def test_verdicts_that_cannot_be_right_are_errors(result: Any, said: str) -> None:
    if said == "has the verdict":
        collector = VerdictCollector(BATCH)
        collector.add("id-1", MessageVerdict("bury"))
        with pytest.raises(ValueError, match=said):
            collector.close(result)
        return
    with pytest.raises(ValueError, match=said):
        VerdictCollector(BATCH).close(result)


@pytest.mark.parametrize("what", [3, [None], object()])
def test_what_names_no_message_is_a_type_error(what: Any) -> None:
    with pytest.raises(TypeError, match="by Message or id"):
        VerdictCollector(BATCH).add(what, MessageVerdict("ack"))


def test_a_message_has_one_verdict_and_an_error_gives_none_at_all() -> None:
    collector = VerdictCollector(BATCH)
    collector.add(BATCH[1], MessageVerdict("nack", 5.0))

    with pytest.raises(ValueError, match="id-1 has the verdict 'nack' already, and cannot have 'bury'"):
        collector.add(BATCH[0:2], MessageVerdict("bury"))
    collector.add(BATCH[1], MessageVerdict("nack", 7.0))

    assert collector.close() == {2: MessageVerdict("nack", 7.0)}


def test_a_verdict_after_the_call_is_refused() -> None:
    collector = VerdictCollector(BATCH)
    collector.close()

    with pytest.raises(RuntimeError, match="after the call"):
        collector.add(BATCH[0], MessageVerdict("ack"))


# ------------------------------------------------------------------ what becomes of the messages


def by_number(batch: list[Message]) -> dict[int, Message]:
    return {item.json()["n"]: item for item in batch}


def say(batch: list[Message], ctx: DrainContext) -> None:
    found = by_number(batch)
    ctx.nack(found[1], delay_seconds=500, error="later")
    ctx.bury(found[2].id, error=ValueError("hopeless"), reason="rotten")
    ctx.release([found[3]])
    ctx.ack(found[4])


def answer(batch: list[Message]) -> list[str | None]:
    said = {1: "nack", 2: "bury", 3: "release", 4: "ack"}
    return [said.get(item.json()["n"]) for item in batch]


def answer_in_a_table(batch: pa.Table) -> pa.Table:
    said: list[Any] = [None, "nack", "bury", "release", "ack", None]
    return batch.append_column("verdict", pa.array(said, pa.string()))


def answer_in_a_frame(batch: pd.DataFrame) -> pd.DataFrame:
    said = {1: "nack", 2: "bury", 3: "release"}
    return batch.assign(verdict=[said.get(n) for n in batch["n"]])


@pytest.mark.parametrize(
    ("process", "schema"),
    [(say, None), (answer, None), (answer_in_a_table, None), (answer_in_a_frame, "n int")],
    ids=["context", "list", "table", "frame"],
)
def test_each_message_gets_its_verdict_in_one_call(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, process: Process, schema: Any
) -> None:
    numbers(6)
    schema = pa.schema([("n", pa.int32())]) if schema else None
    client.config_resetstat()

    summary = drain_here(queue, process, schema=schema)

    assert (summary.acked, summary.returned, summary.buried, summary.failures) == (3, 2, 1, ())
    counters = state.counters(client, "orders")
    assert (counters["acked"], counters["nacked"], counters["released"], counters["buried"]) == (3, 1, 1, 1)
    contents = state.contents(client, "orders")
    assert [Message(value).json()["n"] for value in contents.delayed] != []
    assert (contents.pending, contents.in_flight) == ([], [])
    (dead,) = queue.peek(state="dead")
    assert dead.message is not None
    assert dead.message.json() == {"n": 2}
    stats = client.info("commandstats")
    # A claim, a note of what goes back, a settle, a claim that passes the released one by, and a look behind the end.
    assert stats["cmdstat_evalsha"]["calls"] <= 6
    assert stats["cmdstat_hset"]["calls"] <= 4


def test_error_reason_and_delay_are_kept(queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis) -> None:
    numbers(6)

    drain_here(queue, say)

    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("rotten", "ValueError", "hopeless")
    seconds = client.time()[0]
    due = {
        Message(value).json()["n"]: at / 1000
        for value, at in client.zrange("sluicegate:{orders}:delayed", 0, -1, withscores=True)
    }
    assert 490 < due[1] - seconds <= 501
    assert 0 < due[3] - seconds <= 31  # released: skipped, and delayed for half a minute


def test_verdicts_that_were_given_before_the_handler_raised_stand(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(8)
    seen: list[list[int]] = []

    def process(batch: list[Message], ctx: DrainContext) -> None:
        found = by_number(batch)
        seen.append(sorted(found))
        for n in (0, 1):
            if n in found:
                ctx.ack(found[n])
        if 2 in found:
            ctx.bury(found[2])
        if 5 in found:
            raise ValueError("five")

    summary = drain_here(queue, process)

    assert (summary.acked, summary.returned, summary.buried) == (6, 1, 1)
    assert seen == [[0, 1, 2, 3, 4, 5, 6, 7], [3, 4, 5], [3, 4], [5], [6, 7]]
    (failure,) = summary.failures
    assert (failure.messages, failure.error_type) == (1, "ValueError")
    assert [Message(value).json()["n"] for value in state.contents(client, "orders").delayed] == [5]
    assert state.counters(client, "orders")["acked"] == 6


def test_the_only_message_without_a_verdict_is_not_guilty_unseen(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(3)
    calls: list[int] = []

    def process(batch: list[Message], ctx: DrainContext) -> None:
        calls.append(len(batch))
        if len(batch) == 3:
            ctx.ack(batch[:2])
            raise ValueError("not the fault of the third")

    summary = drain_here(queue, process)

    assert (calls, summary.acked, summary.failures) == ([3, 1], 3, ())


def test_an_error_after_a_verdict_for_each_message_is_told_and_alters_none(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(3)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.ack(batch)
        raise OSError("closing failed")

    summary = drain_here(queue, process)

    assert (summary.acked, summary.returned, summary.ended) == (3, 0, "empty")
    assert [(failure.messages, failure.error_type) for failure in summary.failures] == [(0, "OSError")]


def test_verdicts_stand_when_the_process_is_told_to_end(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(4)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.ack(batch[0])
        ctx.bury(batch[1])
        raise SystemExit

    with pytest.raises(SystemExit):
        drain_here(queue, process)

    counters = state.counters(client, "orders")
    assert (counters["acked"], counters["buried"], counters["released"]) == (1, 1, 2)
    assert [item.json()["n"] for item in queue.claim(10)] == [2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda batch: ["ack"] * (len(batch) + 1),
        lambda batch: ["done"] * len(batch),
        lambda batch: "done",
        lambda batch: {"rows": len(batch)},
        lambda batch: pa.table({"n": [message.json()["n"] for message in batch]}),
        lambda batch: pd.DataFrame({"n": [message.json()["n"] for message in batch]}),
    ],
    ids=["too many", "unknown", "one unknown", "mapping", "table", "frame"],
)
def test_a_wrong_answer_is_the_handlers_failure_and_acks_nothing(
    queue: RedisMessageQueue, numbers: Numbers, wrong: Callable[..., object]
) -> None:
    numbers(8)

    summary = drain_here(queue, wrong, batch_size=8)

    assert {failure.error_type for failure in summary.failures} == {"VerdictError"}
    assert (summary.acked, summary.returned, summary.ended) == (0, 8, "failing")


def test_what_is_wrong_with_an_answer_is_told_where_the_drain_fails(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(1)

    summary = DrainSummary("run", "orders", (drain_here(queue, lambda batch: {"rows": 1}),), 1.0)

    reported = summary.describe_failures()
    assert "verdicts.py" in reported
    assert ": process returned a dict, which is no verdict; return None where all is done" in reported


def test_what_does_not_fit_a_schema_is_told_where_the_drain_fails(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(1)

    part = drain_here(queue, lambda batch: None, schema=pa.schema([("n", pa.bool_())]))

    assert "does not fit the declared schema: " in DrainSummary("run", "orders", (part,), 1.0).describe_failures()


def test_a_nack_at_the_last_delivery_buries(server: RedisServer, make_queue: MakeQueue) -> None:
    queue = make_queue(url=server.url, max_delivery_count=1)
    queue.publish_many({"n": n} for n in range(3))

    summary = drain_here(queue, lambda batch, ctx: ctx.nack(batch[0], error="no"))

    assert (summary.acked, summary.returned, summary.buried) == (2, 0, 1)
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error) == ("max_delivery_count", "no")


def test_a_payload_that_does_not_fit_the_schema_costs_one_more_call(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(100)
    queue.publish({"n": "seven"})
    queue.publish({"n": "eight"})
    numbers(10)
    rows: list[int] = []

    def process(batch: pa.Table) -> None:
        rows.append(len(batch))

    summary = drain_here(queue, process, schema=pa.schema([("n", pa.int64())]))

    assert (rows, summary.acked, summary.returned) == ([110], 110, 2)
    assert {(failure.messages, failure.error_type) for failure in summary.failures} == {(1, "PayloadError")}
    for failure in summary.failures:
        assert failure.message_ids[0] in failure.error
        assert "seven" not in failure.error


def test_a_table_that_gives_a_message_two_verdicts_gives_none_at_all() -> None:
    collector = VerdictCollector(BATCH)

    with pytest.raises(ValueError, match="id-0 has the verdict 'nack' already, and cannot have 'bury'"):
        collector.close(pa.table({"id": ["id-0", "id-1", "id-0"], "verdict": ["nack", "ack", "bury"]}))

    assert collector.close() == {}


def test_a_series_in_another_order_than_the_messages_is_refused() -> None:
    verdicts = pd.Series(["ack", "ack", "bury", "ack"])

    with pytest.raises(ValueError, match="another order"):
        VerdictCollector(BATCH).close(verdicts.iloc[::-1])

    assert verbs(VerdictCollector(BATCH).close(verdicts)) == {0: "ack", 1: "ack", 2: "bury", 3: "ack"}
    by_id = pd.Series(["bury", None, None, None], index=[message.id for message in BATCH])
    assert verbs(VerdictCollector(BATCH).close(by_id)) == {0: "bury"}


@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (lambda ctx, item: ctx.bury(item, reason=5), "TypeError"),
        (lambda ctx, item: ctx.nack(item, error={"code": 5}), "TypeError"),
        (lambda ctx, item: ctx.bury(item, error=5), "TypeError"),
        (lambda ctx, item: ctx.nack(item, delay_seconds="5"), "ValueError"),
        (lambda ctx, item: ctx.nack(item, delay_seconds=float("inf")), "ValueError"),
    ],
)
def test_a_verdict_that_no_settle_takes_is_the_handlers_failure(
    queue: RedisMessageQueue, numbers: Numbers, say: Callable[[DrainContext, Message], None], kind: str
) -> None:
    numbers(2)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        if batch[0].json()["n"] == 0:
            say(ctx, batch[0])

    summary = drain_here(queue, process)

    assert (summary.acked, summary.returned) == (1, 1)
    assert [failure.error_type for failure in summary.failures] == [kind]


@dataclass
class Refused(Exception):
    why: str


def test_errors_of_any_class_are_kept(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(3)

    drain_here(queue, lambda batch, ctx: ctx.bury(batch[:2], error=Refused("too old")))

    assert [(dead.error_type, dead.error) for dead in queue.peek(state="dead")] == [("Refused", "too old")] * 2


def test_a_verdict_of_its_own_for_each_of_many_messages_does_not_hold_redis_up(
    queue: RedisMessageQueue, client: redis.Redis
) -> None:
    queue.publish_many({"n": n} for n in range(10_000))
    before = client.config_get("slowlog-log-slower-than")
    client.config_set("slowlog-log-slower-than", 5_000_000)  # a quarter of a second, on a quiet machine
    client.slowlog_reset()

    def process(batch: list[Message], ctx: DrainContext) -> None:
        for at, item in enumerate(batch):
            ctx.nack(item, delay_seconds=600 + at, error=f"error {at}")

    summary = drain_here(queue, process, batch_size=10_000)

    assert (summary.returned, queue.depth().delayed) == (10_000, 10_000)
    assert client.slowlog_get() == []
    client.config_set("slowlog-log-slower-than", before["slowlog-log-slower-than"])
