"""Tests below the queue make their batches here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sluicegate.core.publishing import Publishing
from sluicegate.core.transitions.publish import Batch

__all__ = ["one_call"]


def one_call(
    publishing: Publishing,
    batch_id: bytes,
    payloads: Iterable[Any],
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Batch:
    """Return the messages as a single call under a known id; fail if they do not fit into one."""
    (batch,) = publishing.batches(payloads, headers, new_id=lambda: batch_id, **options)
    assert isinstance(batch, Batch)
    return batch
