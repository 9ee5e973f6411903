"""Messages out of what users publish: plain payloads, and the rows of pandas and Arrow tables.

Neither pandas nor Arrow is imported here: an object of theirs is known by its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from sluicegate.bulk.reader import check_messages
from sluicegate.errors import ConfigurationError

__all__ = ["is_at_hand", "messages_of"]

_ROWS_AT_ONCE = 1000
_TABLES = ("DataFrame", "Table", "RecordBatch", "RecordBatchReader")
_EVENTS = (
    dg.MaterializeResult,
    dg.ObserveResult,
    dg.AssetMaterialization,
    dg.AssetObservation,
    dg.Output,
    dg.DynamicOutput,
)


def messages_of(made: Any, what: str, results: list[dg.AssetCheckResult] | None = None) -> Iterator[Any]:
    """Yield the messages in what a function returned or an output holds; tables among them become a dict per row.

    Args:
        made: an iterable of payloads, or a table.
        what: its name in errors.
        results: takes the results of asset checks that stand among the messages; None refuses them.

    Raises:
        ConfigurationError: it is no iterable of messages, or an event of Dagster stands among them.
    """
    _refuse_event(made, what)
    for item in [made] if _is_table(made) else check_messages(made, what):
        if results is not None and isinstance(item, dg.AssetCheckResult):
            results.append(item)
            continue
        _refuse_event(item, what)
        if _is_table(item):
            yield from _rows(item)
        else:
            yield item


def is_at_hand(made: Any) -> bool:
    """Return whether the next message is there without waiting for it."""
    return _is_table(made) or isinstance(made, (list, tuple))


def _refuse_event(item: Any, what: str) -> None:
    if isinstance(item, (*_EVENTS, dg.AssetCheckResult)):
        raise ConfigurationError(
            f"{what} holds a {type(item).__name__}, which is no message; it holds payloads only, and the library adds "
            "the metadata"
        )


def _is_table(value: Any) -> bool:
    kind = type(value)
    return kind.__module__.partition(".")[0] in ("pandas", "pyarrow") and kind.__name__ in _TABLES


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    if type(table).__name__ == "DataFrame":
        for start in range(0, len(table), _ROWS_AT_ONCE):
            part = table.iloc[start : start + _ROWS_AT_ONCE]
            # What is missing becomes null; JSON has no NaN. Without `object`, the cells would be numpy's.
            yield from part.astype(object).where(part.notna(), None).to_dict("records")
        return
    for batch in _arrow_batches(table):
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield from batch.slice(start, _ROWS_AT_ONCE).to_pylist()


def _arrow_batches(table: Any) -> Iterable[Any]:
    kind = type(table).__name__
    return table.to_batches() if kind == "Table" else [table] if kind == "RecordBatch" else table
