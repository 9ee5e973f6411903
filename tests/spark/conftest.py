"""All tests of Spark share one session and one Redis server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.draining.fixtures import numbers, output, queue, server
from tests.spark.session import end_gateway, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["numbers", "output", "queue", "server"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a local session with two tasks at a time; a job fails when a task has failed three times."""
    with local_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session
    end_gateway()
