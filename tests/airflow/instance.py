"""A task instance without Airflow's supervisor, for tests that call `execute` themselves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any


class Instance(SimpleNamespace):
    """A task instance that keeps what is pushed."""

    def __init__(self) -> None:
        super().__init__(dag_id="dag", task_id="task", run_id="run", map_index=-1, try_number=1, pushed={})

    def get_task_states(self, *, run_ids: list[str], task_ids: list[str], **_: Any) -> dict[str, dict[str, str]]:
        """Return that every task of the run succeeded."""
        return {run_id: dict.fromkeys(task_ids, "success") for run_id in run_ids}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))
