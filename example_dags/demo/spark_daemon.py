"""Start Spark's Python daemon with the libraries of the drain already loaded.

Spark forks a worker from the daemon for each concurrent task, and a new one for each worker that died. The daemon loads
the libraries once, so that workers start at once. This speeds up the demo; no drain needs it.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # A fork must not interrupt a thread of a library.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    from pyspark.daemon import manager

    import sluicegate.spark.draining.task  # noqa: F401

    manager()
