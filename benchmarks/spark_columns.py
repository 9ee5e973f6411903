"""JSON payloads into typed Arrow columns, beside decoding them row by row into the same columns; no Spark, no Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.measure import median
from benchmarks.messages import BATCH
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate import Message
from sluicegate.spark.schemas import parsed
from sluicegate.tables.arrow import FIELDS, message_arrays
from sluicegate.tables.columns import Columns

__all__ = ["run", "steps"]

_BATCHES = 20
_SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("tenant", pa.string()),
        ("amount", pa.float64()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)
_ARROW, _JSON, _ORJSON, _OWN = "Columns.table", "json.loads per row", "orjson.loads per row", "message columns alone"


def steps(settings: Settings) -> Iterator[Step]:
    yield "typed columns", lambda: run(settings["rounds"])


def run(rounds: int) -> Found:
    """Measure each way in turn, `rounds` times after one to warm up, by the processor time of this process."""
    messages = [_message(number) for number in range(BATCH)]
    columns = Columns.of(parsed(_SCHEMA), message_columns=False)
    ways: dict[str, Callable[[], object]] = {
        _ARROW: lambda: columns.table(messages),
        _JSON: lambda: _by_row(messages, json.loads),
        _ORJSON: lambda: _by_row(messages, orjson.loads),
        _OWN: lambda: message_arrays(messages, FIELDS),
    }
    expected = columns.table(messages)
    assert _by_row(messages, json.loads).equals(expected)
    assert _by_row(messages, orjson.loads).equals(expected)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            start = time.process_time()
            for _ in range(_BATCHES):
                way()
            seconds[name].append(time.process_time() - start)
    return _result({name: values[1:] for name, values in seconds.items()}, len(messages[0].payload))


def _result(seconds: dict[str, list[float]], size: int) -> Found:
    ratio = median(row / arrow for row, arrow in zip(seconds[_JSON], seconds[_ARROW], strict=True))
    how = f"median of {len(seconds[_ARROW])} rounds of {_BATCHES * BATCH:,} payloads of {size} B, six columns"
    rates = {name: {"messages/s of one core": _BATCHES * BATCH / median(values)} for name, values in seconds.items()}
    bar = Bar("JSON into Arrow columns / json.loads per row", "fast", ratio, 2, True, "x", how)
    return Found({"JSON payloads into typed columns": rates}, [bar])


def _message(number: int) -> Message:
    payload = {
        "order_id": number,
        "tenant": f"tenant-{number % 7}",
        "amount": number * 1.25,
        "paid": number % 2 == 0,
        "at": f"2024-01-31T12:{number % 60:02d}:00Z",
        "note": "x" * 80,
    }
    entry = b"1%012x%012x0000%032x\x1forders:%d\x1f\x1f%b" % (
        number + 1,
        1_700_000_000_000,
        number,
        number,
        _dumps(payload),
    )
    return Message(entry, number, 1)


def _dumps(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def _by_row(messages: Sequence[Message], loads: Callable[[bytes], Any]) -> pa.Table:
    rows = [loads(message.payload) for message in messages]
    for row in rows:
        row["at"] = datetime.fromisoformat(row["at"])
    return pa.Table.from_arrays(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in _SCHEMA], schema=_SCHEMA
    )
