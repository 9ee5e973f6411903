"""The name of a task instance's work, which its leases carry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_sluicegate.identity import run_id_of

pytestmark = pytest.mark.airflow


def context(dag_id: str, task_id: str, run_id: str, map_index: int | None = -1, try_number: int = 1) -> dict[str, Any]:
    fields = {"dag_id": dag_id, "task_id": task_id, "run_id": run_id}
    return {"ti": SimpleNamespace(**fields, map_index=map_index, try_number=try_number)}


def test_a_retry_has_the_name_of_the_try_before_it() -> None:
    name = "orders/drain/manual__2013-01-01T00:00:00+00:00/-1"

    assert run_id_of(context("orders", "drain", "manual__2013-01-01T00:00:00+00:00")) == name
    assert run_id_of(context("orders", "drain", "manual__2013-01-01T00:00:00+00:00", try_number=2)) == name
    assert run_id_of(context("orders", "drain", "manual__2013-01-01T00:00:00+00:00", None)) == name


def test_no_two_task_instances_share_a_name() -> None:
    instances = [
        ("a", "b", "c", -1),
        ("a", "b", "c", 0),
        ("a", "b", "c", 10),
        ("a", "b/c", "d", 0),
        ("a/b", "c", "d", 0),
        ("a%2Fb", "c", "d", 0),
        ("a", "b%", "c", 0),
        ("a", "b", "%c", 0),
        ("a", "b", "c/0", -1),
        ("a", "b", "", 0),
    ]

    assert len({run_id_of(context(*instance)) for instance in instances}) == len(instances)
    assert run_id_of(context("a/b", "c", "50%", 3)) == "a%2Fb/c/50%25/3"
