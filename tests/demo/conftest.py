from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from example_dags.demo.data import find_csv
from example_dags.demo.expected import Expected, compute_expected
from example_dags.demo.paths import Paths
from sluicegate.embedded import stop_server


@pytest.fixture(scope="session")
def expected() -> Expected:
    """Return the real file, read once."""
    return compute_expected(find_csv())


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Paths]:
    """Yield an empty home with its own embedded server, which starts at its first user."""
    paths = Paths(tmp_path / "a home, with 100% spaces")
    paths.clear()
    yield paths
    stop_server(paths.redis)
