"""Let Spark find the data source by name; Spark finds no source at all if a `pyspark_*` package raises."""

__all__ = ["DefaultSource"]

with __import__("contextlib").suppress(BaseException):  # no pyarrow, no pyspark, a half-installed sluicegate
    from sluicegate.spark.datasource import SluicegateDataSource as DefaultSource
