"""Use the driver's session, classic or Connect: make a reader, and collect ids of a DataFrame."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["collect_ids", "reader", "register"]

_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def reader(spark: SparkSession) -> DataFrameReader:
    """Return `spark.read.format("sluicegate")`; register it first, in case a cluster has not found it by its name."""
    from sluicegate.spark.datasource import SluicegateDataSource

    register(spark)
    return spark.read.format(SluicegateDataSource.name())


def register(spark: SparkSession) -> None:
    """Register the data source with a session."""
    from pyspark.errors import AnalysisException

    from sluicegate.spark.datasource import SluicegateDataSource

    if spark not in _registered:  # Spark logs a warning for a second registration
        try:
            spark.dataSource.register(SluicegateDataSource)
        except AnalysisException as error:
            if (
                error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS"
            ):  # Spark 4.0 refuses a source that it has found by its name
                raise
        _registered.add(spark)


def collect_ids(frame: DataFrame, names: Sequence[str], what: str) -> list[str | None]:
    """Collect the ids of a DataFrame, from the first of the columns `names` that it has, and nothing else.

    Raises:
        ConfigurationError: it has none of these columns, or the column is not text.
    """
    name = next((name for name in names if name in frame.columns), None)
    if name is None:
        raise ConfigurationError(
            f"{what} needs a DataFrame with the column {' or '.join(names)}, not one of {', '.join(frame.columns)}"
        )
    ids = frame.select(f"`{name}`")
    if ids.schema[0].dataType.typeName() != "string":
        raise ConfigurationError(
            f"column {name!r} must hold message ids as string, not {ids.schema[0].dataType.simpleString()}"
        )
    found: list[str | None] = ids.toArrow().column(0).to_pylist()
    return found
