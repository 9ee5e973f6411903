"""Drain a queue with Spark: one lease per partition and chunk, claimed, worked on and settled inside the executors.

Needs `pyspark` (or `pyspark-client`) and `pyarrow`, here and on the executors, which also need this package and a way
to reach Redis. Importing this module loads none of them.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sluicegate.draining.context import DrainContext
from sluicegate.draining.progress import DrainProgress
from sluicegate.draining.summary import DrainSummary, HandlerFailure, PartitionSummary

if TYPE_CHECKING:
    from sluicegate.spark._options import options
    from sluicegate.spark.browsing.dead_letters import SelectedRedriveReport, dead_letters, redrive_selected
    from sluicegate.spark.datasource import SluicegateDataSource
    from sluicegate.spark.draining.driver import drain
    from sluicegate.spark.inference import InferredSchema, infer_schema
    from sluicegate.spark.leasing.batch import LeasedBatch, Txn, lease_batch
    from sluicegate.spark.listener import QueueProgressListener, StreamProgress
    from sluicegate.spark.writing.content import content_keys
    from sluicegate.tables.payloads import PayloadError

__all__ = [
    "DrainContext",
    "DrainProgress",
    "DrainSummary",
    "HandlerFailure",
    "InferredSchema",
    "LeasedBatch",
    "PartitionSummary",
    "PayloadError",
    "QueueProgressListener",
    "SelectedRedriveReport",
    "SluicegateDataSource",
    "StreamProgress",
    "Txn",
    "content_keys",
    "dead_letters",
    "drain",
    "infer_schema",
    "lease_batch",
    "options",
    "redrive_selected",
]

_LAZY = {
    "InferredSchema": "sluicegate.spark.inference",
    "LeasedBatch": "sluicegate.spark.leasing.batch",
    "PayloadError": "sluicegate.tables.payloads",
    "SelectedRedriveReport": "sluicegate.spark.browsing.dead_letters",
    "QueueProgressListener": "sluicegate.spark.listener",
    "SluicegateDataSource": "sluicegate.spark.datasource",
    "StreamProgress": "sluicegate.spark.listener",
    "Txn": "sluicegate.spark.leasing.batch",
    "content_keys": "sluicegate.spark.writing.content",
    "dead_letters": "sluicegate.spark.browsing.dead_letters",
    "drain": "sluicegate.spark.draining.driver",
    "infer_schema": "sluicegate.spark.inference",
    "lease_batch": "sluicegate.spark.leasing.batch",
    "options": "sluicegate.spark._options",
    "redrive_selected": "sluicegate.spark.browsing.dead_letters",
}
_NEEDED = ("pyspark", "pyarrow")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"sluicegate.spark.{name} needs {' and '.join(missing)}; install sluicegate[spark], or "
            "sluicegate[spark-connect] for a remote Spark"
        )
    return getattr(importlib.import_module(_LAZY[name]), name)
