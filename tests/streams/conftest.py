"""Tests of streams with programs in another language; without Node and its client they are listed as not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.streams import node
from tests.support import not_run

collect_ignore = [] if node.is_there() else ["test_node.py"]


def pytest_collection_finish(session: pytest.Session) -> None:
    if collect_ignore and any(Path(__file__).parent in item.path.parents for item in session.items):
        not_run.note(node.MISSING)
