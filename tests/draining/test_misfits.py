"""Payloads that do not fit the schema of a drain: they fail, become nulls, or are buried with their chunk's settle."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import sluicegate
from sluicegate import RedisMessageQueue
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.summary import PartitionSummary
from sluicegate.errors import ConfigurationError, DrainFailedError
from tests.draining.helpers import Killed, leave_leases_open

__all__ = ["leave_leases_open"]

N = pa.schema([("n", pa.int64())])


def publish(queue: RedisMessageQueue, *values: object) -> None:
    """Publish one message per value of `n`."""
    queue.publish_many([{"n": value} for value in values])


def drain_here(queue: RedisMessageQueue, process: Any, mode: str = "BURY", **more: Any) -> PartitionSummary:
    """Drain one partition with a schema of one number, over a connection of its own."""
    handler = Handler.of(process, more.pop("batch_format", None), more.pop("schema", N), mode)
    plan = DrainPlan(run_id="run", handler=handler, **more)
    return DrainEngine(plan, RedisMessageQueue.from_spec(queue.spec())).run()


def test_misfits_are_buried_with_their_path_and_the_handler_gets_the_others(queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one", 2, [3], 4)
    seen: list[list[int]] = []

    summary = drain_here(queue, lambda batch: seen.append(batch["n"].to_pylist()))

    assert seen == [[0, 2, 4]]
    assert (summary.acked, summary.buried, summary.returned, summary.failed, summary.failures) == (3, 2, 0, 0, ())
    assert summary.ended == "empty"
    assert sorted((one.reason, one.error_type, one.error) for one in queue.peek(10, state="dead")) == [
        (
            "invalid_payload",
            "PayloadError",
            f"the payload does not fit the declared schema: field 'n' is {what} that does not fit int64",
        )
        for what in ("a string", "an array")
    ]


def test_chunks_of_misfits_alone_call_no_handler_and_end_no_drain(queue: RedisMessageQueue) -> None:
    publish(queue, *"abcdef", 6, 7)
    seen: list[list[int]] = []

    summary = drain_here(queue, lambda batch: seen.append(batch["n"].to_pylist()), batch_size=2)

    assert (seen, summary.acked, summary.buried, summary.ended, summary.chunks) == ([[6, 7]], 2, 6, "empty", 4)


def test_a_handler_that_fails_beside_misfits_is_bisected_among_the_others(queue: RedisMessageQueue) -> None:
    publish(queue, *range(8), "eight")

    def process(batch: pa.Table) -> None:
        if 5 in batch["n"].to_pylist():
            raise ValueError("no five")

    summary = drain_here(queue, process)

    assert (summary.acked, summary.buried, summary.returned, summary.failed) == (7, 1, 1, 1)


def test_verdicts_by_position_are_those_of_the_messages_that_fit(queue: RedisMessageQueue) -> None:
    publish(queue, "zero", 1, 2)

    summary = drain_here(queue, lambda frame: ["ack", "bury"], batch_format="pandas")

    assert (summary.acked, summary.buried) == (1, 2)
    assert sorted(one.reason for one in queue.peek(10, state="dead")) == ["buried", "invalid_payload"]


def test_a_chunk_that_is_not_split_buries_too(queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one", 2)

    summary = drain_here(queue, lambda batch: None, on_failure="raise")

    assert (summary.acked, summary.buried, queue.depth().dead) == (2, 1, 1)


def test_a_worker_that_dies_before_its_settle_buries_nothing_and_its_retry_once(
    queue: RedisMessageQueue, leave_leases_open: None
) -> None:
    publish(queue, 0, "one", 2)

    def dies(batch: pa.Table) -> None:
        raise Killed

    with pytest.raises(Killed):
        drain_here(queue, dies)
    assert (queue.depth().dead, queue.depth().in_flight) == (0, 3)

    summary = drain_here(queue, lambda batch: None)

    assert (summary.acked, summary.buried, queue.depth().dead, queue.depth().leases) == (2, 1, 1, 0)


def test_permissive_batches_have_nulls_and_the_corrupt_records(queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one")
    frames: list[pd.DataFrame] = []

    summary = sluicegate.drain(
        queue,
        frames.append,
        batch_format="pandas",
        schema=pa.schema([("n", pa.int64()), ("bad", pa.string())]),
        mode="permissive",
        column_name_of_corrupt_record="bad",
        progress=False,
    )

    (frame,) = frames
    assert frame["bad"].tolist() == [None, '{"n":"one"}']
    assert (frame["n"].tolist()[0], frame["n"].isna().tolist()) == (0, [False, True])
    assert (summary.acked, summary.buried) == (2, 0)


def test_failfast_is_the_default_and_fails_the_misfit(queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one")

    with pytest.raises(DrainFailedError) as caught:
        sluicegate.drain(queue, lambda batch: None, schema=N, progress=False)

    assert (caught.value.summary.acked, caught.value.summary.failed, queue.depth().dead) == (1, 1, 0)


def test_workers_of_a_plain_drain_bury(queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one", 2)

    summary = sluicegate.drain(queue, lambda batch: None, schema=N, mode="BURY", progress=False)

    assert (summary.acked, summary.buried, summary.failed) == (2, 1, 0)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"mode": "BURY"}, "there is none; give a schema"),
        ({"column_name_of_corrupt_record": "bad"}, "there is none; give a schema"),
        ({"mode": "drop", "schema": N}, "mode must be one of FAILFAST, PERMISSIVE, BURY, not 'drop'"),
    ],
)
def test_modes_that_cannot_work_are_refused_before_a_claim(
    queue: RedisMessageQueue, given: dict[str, Any], error: str
) -> None:
    publish(queue, 0)

    with pytest.raises(ConfigurationError, match=error):
        sluicegate.drain(queue, lambda batch: None, **given)

    assert queue.depth().ready == 1
