"""A handler of tables costs no `Message` per message, until one of them fails or gets a verdict of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import DrainContext, Message, RedisMessageQueue, drain
from sluicegate.core.entry import client_part, encode_headers
from sluicegate.core.keys import encode_name
from sluicegate.core.leased import LeasedEntries
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.handler import Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.errors import DrainFailedError, MalformedStoredMessageError
from sluicegate.leased_messages import LeasedMessages
from sluicegate.tables.arrow import FIELDS, message_arrays, to_table
from sluicegate.tables.columns import Columns
from tests.draining.helpers import Numbers

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@contextmanager
def no_messages() -> Iterator[None]:
    """Fail when a lease makes objects of its messages."""

    def refuse(*_: Any) -> Message:
        raise AssertionError("an object was made for each message")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluicegate.leased_messages.Message", refuse)
        yield


@pytest.mark.parametrize("schema", [None, SCHEMA])
@pytest.mark.parametrize("batch_format", ["arrow", "pandas"])
def test_a_drain_into_tables_makes_no_objects(
    queue: RedisMessageQueue, numbers: Numbers, batch_format: Any, schema: pa.Schema | None
) -> None:
    wanted, rows = numbers(25), []
    size = sum(message.size for message in queue.peek(25))

    def process(batch: Any, ctx: DrainContext) -> None:
        table = pa.Table.from_pandas(batch) if isinstance(batch, pd.DataFrame) else batch
        rows.extend(table.column("n" if schema else "sequence").to_pylist())

    with no_messages():
        summary = drain(queue, process, batch_size=10, batch_format=batch_format, schema=schema, progress=False)
    assert (summary.acked, summary.bytes) == (25, size)
    assert rows == (wanted if schema else list(range(1, 26)))
    assert queue.depth().ready == queue.depth().in_flight == 0


def test_a_failing_message_is_found_and_the_others_are_acked(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(20)

    def process(batch: pa.Table) -> None:
        if 13 in batch.column("n").to_pylist():
            raise ValueError("thirteen")

    with pytest.raises(DrainFailedError) as failed:
        drain(queue, process, batch_size=20, schema=SCHEMA, progress=False)
    summary = failed.value.summary
    assert (summary.acked, summary.returned, summary.failed) == (19, 1, 1)
    (left,) = queue.peek(5, state="delayed")
    assert left.json() == {"n": 13}


@pytest.mark.parametrize("way", ["context", "column", "table"])
def test_verdicts_of_a_handler_of_tables_reach_their_messages(
    queue: RedisMessageQueue, numbers: Numbers, way: str
) -> None:
    numbers(6)

    def process(batch: pa.Table, ctx: DrainContext) -> Any:
        odd = [n % 2 == 1 for n in batch.column("n").to_pylist()]
        ids = batch.column("message_id")
        if way == "context":
            ctx.bury(ids.filter(pa.array(odd)), reason="odd")
            return None
        verdicts = pa.array(["bury" if one else None for one in odd], pa.string())
        return verdicts if way == "column" else pa.table({"message_id": ids, "verdict": verdicts})

    summary = drain(queue, process, schema=SCHEMA, progress=False)
    assert (summary.acked, summary.buried) == (3, 3)
    assert sorted(dead.message.json()["n"] for dead in queue.peek(9, state="dead") if dead.message) == [1, 3, 5]


def test_a_taken_over_chunk_shows_the_delivery_counts_of_its_messages(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(4)
    counts: list[int] = []

    def process(batch: pa.Table) -> None:
        counts.extend(batch.column("delivery_count").to_pylist())

    plan = DrainPlan(run_id="run", handler=Handler.of(process, "arrow"), batch_size=4, lease_seconds=60, partitions=1)
    first = queue.claim(4, lease_id=plan.lease_id(0, 0), lease_seconds=60)
    first.ack(first.messages[1])
    with no_messages():
        summary = DrainEngine(plan, queue).run()
    assert counts == [2, 2, 2]
    assert (summary.acked, summary.taken_over) == (3, 1)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
ENTRIES = st.lists(
    st.builds(
        lambda kind, sequence, count, key, headers, payload: (
            kind
            + b"%012x%012x%03x0" % (sequence, 1_764_450_000_000 + sequence, count)
            + client_part(b"id-%d" % sequence, encode_name(key).encode(), encode_headers(headers), payload)
        ),
        st.sampled_from([b"1", b"2", b"5", b"6", b"7", b"8"]),
        st.integers(0, 2**40),
        st.integers(0, 9),
        TEXTS,
        st.dictionaries(TEXTS, TEXTS, max_size=2),
        st.binary(max_size=8),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(ENTRIES, st.integers(1, 4))
def test_a_table_shows_what_its_messages_show(entries: list[bytes], begun: int) -> None:
    lazy = LeasedMessages(LeasedEntries(entries, None, begun))
    with no_messages():
        table = to_table(lazy)
    messages = [Message(entry, slot, begun) for slot, entry in enumerate(entries, 1)]
    assert table.equals(to_table(messages))
    for field in FIELDS:
        shown = [dict(value) if field == "headers" else value for value in table.column(field).to_pylist()]
        assert shown == [getattr(message, field) for message in messages], field


def test_a_value_that_is_no_entry_is_refused_as_before() -> None:
    good = b"1" + b"0" * 28 + b"id\x1f\x1f\x1f"
    for bad in (b"9" + good[1:], b"nothing", b"1" + b"x" * 28 + b"id\x1f\x1f\x1f", good[:28] + b"z" + good[29:]):
        with pytest.raises(MalformedStoredMessageError, match="not a Sluicegate entry"):
            message_arrays(LeasedMessages(LeasedEntries([good, bad])), FIELDS)


def test_a_payload_that_does_not_fit_is_named_by_its_id() -> None:
    prefix = b"1" + b"0" * 28
    entries = [prefix + b"id-%d\x1f\x1f\x1f" % at + payload for at, payload in enumerate([b'{"n":1}', b"{}", b"[]"])]
    with pytest.raises(ValueError, match=r"message 'id-1' \(and 1 more of 3\) does not fit") as refused:
        Columns.of(SCHEMA).table(LeasedMessages(LeasedEntries(entries)))
    assert refused.value.positions == (1, 2)  # type: ignore[attr-defined]
    assert refused.value.message_ids == ("id-1", "id-2")  # type: ignore[attr-defined]
