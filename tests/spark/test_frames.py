"""A reader of ours is registered once per session, also where Spark has found it by its name already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from sluicegate.spark.browsing.frames import reader


class Session:
    """As much of a session as a reader needs; refuses a registration with an error of that condition."""

    def __init__(self, refuses: str = "") -> None:
        self.registered: list[Any] = []
        self.refuses = refuses
        self.dataSource = SimpleNamespace(register=self.register)
        self.read = SimpleNamespace(format=lambda name: f"reader of {name}")

    def register(self, source: Any) -> None:
        self.registered.append(source)
        if self.refuses:
            raise AnalysisException(message="refused", errorClass=self.refuses, messageParameters={})


def test_a_session_is_told_once() -> None:
    session = Session()
    assert [reader(session), reader(session)] == ["reader of sluicegate"] * 2  # type: ignore[arg-type]
    assert len(session.registered) == 1


def test_a_source_that_spark_found_by_itself_is_no_error() -> None:
    session = Session("DATA_SOURCE_ALREADY_EXISTS")
    assert [reader(session), reader(session)] == ["reader of sluicegate"] * 2  # type: ignore[arg-type]
    assert len(session.registered) == 1


def test_any_other_refusal_is_told() -> None:
    session = Session("ANOTHER_REFUSAL")
    for _ in range(2):
        with pytest.raises(AnalysisException):
            reader(session)  # type: ignore[arg-type]
    assert len(session.registered) == 2
