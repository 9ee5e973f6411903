"""Spark imports every `pyspark_*` package it finds, and finds no data source at all when one of them raises."""

__all__ = ["DefaultSource"]

with __import__("contextlib").suppress(BaseException):  # no pyarrow, no pyspark, a half-installed sluicegate
    from sluicegate.spark.datasource import SluicegateDataSource as DefaultSource
