"""Spark's Python daemon with the libraries of the drain already loaded.

Spark forks a worker from it for each task that runs at the same time, and a new one for each that died. Loaded here
once instead of in every worker, they let workers begin at once. A speed-up of the demo's, which no drain needs.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # A fork must not find threads of a library half-way through something.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    from pyspark.daemon import manager

    import sluicegate.spark.draining.task  # noqa: F401

    manager()
