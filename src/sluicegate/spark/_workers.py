"""Choose the interpreter of Spark's Python workers, which is not always the driver's.

Spark starts workers with `PYSPARK_PYTHON`, or else with the first `python3` on the path. In a virtual environment that
is not activated, that is another interpreter, which does not have this package.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sluicegate.errors import ConfigurationError
from sluicegate.spark._secrets import warn_of_secrets_in_clear
from sluicegate.spec import QueueSpec

__all__ = ["explaining", "prepare"]

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_log = logging.getLogger("sluicegate")


def prepare(spark: Any, spec: QueueSpec | None = None) -> bool:
    """Make a local Spark run its Python workers with the driver's interpreter, unless the user has named one.

    Spark then also finds the data source with that interpreter. Only a local master is changed: on a cluster the driver
    does not know the executors' paths, and a Connect client does not know its server's. There `explaining` says what to
    do.

    Args:
        spark: the session; None for none.
        spec: of the queue that the workers will use; a password of it that Spark shows in clear is reported.

    Returns:
        Whether the interpreter was changed.
    """
    from sluicegate.spark.browsing.frames import register

    if spark is not None and spec is not None:
        warn_of_secrets_in_clear(spark, spec)
    context: Any = getattr(spark, "sparkContext", None)
    master, used = getattr(context, "master", None), getattr(context, "pythonExec", None)
    if not isinstance(master, str) or not isinstance(used, str) or not re.match(r"local(\[|$)", master):
        return False
    if os.environ.get("PYSPARK_PYTHON") or spark.conf.get("spark.pyspark.python", None) or not sys.executable:
        return False
    if _environment(used) == _environment(sys.executable):
        return False
    context.pythonExec = sys.executable
    register(spark)  # Spark looks a data source up by its name with the other interpreter
    _log.info("Spark's Python workers run with %s, as this driver does, and not with %r", sys.executable, used)
    return True


@contextmanager
def explaining() -> Iterator[None]:
    """Turn a worker's `ModuleNotFoundError`, which Spark shows as pages of traceback, into advice.

    Raises:
        ConfigurationError: the workers lack a module.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = _MISSING.search(str(error))
        if found is None:
            raise
        raise ConfigurationError(
            f"Spark's Python workers cannot import {found[1]!r}. Set the environment variable PYSPARK_PYTHON to an "
            "interpreter that has it before the session, or the Connect server, starts (if everything runs on this "
            f"machine: PYSPARK_PYTHON={sys.executable}), or send it with spark.addArtifacts or --py-files"
        ) from None


def _environment(python: str) -> str:
    """Return the folder of an interpreter; links inside a virtual environment do not lead out of it."""
    found = shutil.which(python) or python
    return os.path.realpath(os.path.dirname(os.path.abspath(found)))
