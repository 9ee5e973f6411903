from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from example_dags.demo.data import find_csv
from example_dags.demo.layout import Layout
from example_dags.demo.truth import Truth, read_truth
from sluicegate.embedded import stop_server


@pytest.fixture(scope="session")
def truth() -> Truth:
    """The real file, read once."""
    return read_truth(find_csv())


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """An empty home with its own embedded server, which starts at its first user."""
    layout = Layout(tmp_path / "a home, with 100% spaces")
    layout.clear()
    yield layout
    stop_server(layout.redis)
