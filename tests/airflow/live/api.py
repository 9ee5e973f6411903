"""Airflow's REST API, as far as the tests use it."""

from __future__ import annotations

import uuid
from typing import Any

import httpx

from tests.support.waiting import wait_until

RUN_SECONDS = 120.0
EVERY_SECONDS = 0.25
_PAGE = 100  # rows of an answer at most
_DONE = ("success", "failed")


class AirflowApi:
    """A client of the REST API of one deployment, whose users are all administrators."""

    def __init__(self, url: str) -> None:
        # The settings of a proxy are for other hosts.
        self.client = httpx.Client(base_url=f"{url}/api/v2", timeout=60, trust_env=False)

    def answers(self) -> bool:
        """Return whether the server is there."""
        try:
            return self.client.get("/version").is_success
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: Any) -> Any:
        return self._json(self.client.get(path, params=query))

    def rows(self, path: str, key: str, **query: Any) -> list[dict[str, Any]]:
        """Return all rows of an answer that comes in pages."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.get(path, limit=_PAGE, offset=len(found), **query)[key]
            found += page
            if len(page) < _PAGE:
                return found

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._json(self.client.post(path, json=body))

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._json(self.client.patch(path, json=body))

    # ------------------------------------------------------------------ DAGs and runs

    def knows(self, dag_id: str) -> bool:
        """Return whether the DAG has been parsed; fail when a DAG file cannot be."""
        errors = self.get("/importErrors")["import_errors"]
        assert not errors, "\n".join(error["stack_trace"] for error in errors)
        return self.client.get(f"/dags/{dag_id}").is_success

    def pause(self, dag_id: str, paused: bool = True) -> None:
        self.patch(f"/dags/{dag_id}", {"is_paused": paused})

    def unpause(self, dag_id: str) -> None:
        self.pause(dag_id, False)

    def trigger(self, dag_id: str, run_id: str | None = None, **conf: Any) -> str:
        """Start a run without a logical date, as the web page does, and return its id."""
        run_id = run_id or f"run-{uuid.uuid4().hex[:8]}"
        self.post(f"/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None, "conf": conf})
        return run_id

    def run_states(self, dag_id: str) -> dict[str, str]:
        """Return the state of each run by its id, the first run first."""
        runs = self.rows(f"/dags/{dag_id}/dagRuns", "dag_runs", order_by="id")
        return {run["dag_run_id"]: run["state"] for run in runs}

    def wait_for_run(self, dag_id: str, run_id: str, state: str = "success", seconds: float = RUN_SECONDS) -> None:
        """Wait until a run has ended, and check how."""
        self.wait_for_runs(dag_id, {run_id}, state, seconds)

    def wait_for_runs(
        self, dag_id: str, run_ids: set[str], state: str = "success", seconds: float = RUN_SECONDS
    ) -> None:
        """Wait until runs have ended, and check how."""

        def ended() -> bool:
            states = self.run_states(dag_id)
            return all(states.get(run_id) in _DONE for run_id in run_ids)

        wait_until(ended, f"runs of {dag_id!r} end", seconds, EVERY_SECONDS)
        states = self.run_states(dag_id)
        others = {run_id: self.tasks(dag_id, run_id) for run_id in run_ids if states[run_id] != state}
        assert not others, f"not {state}: {others}"

    # ------------------------------------------------------------------ tasks

    def instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        return self.rows(path, "task_instances")

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task of a run; mapped ones are numbered."""
        return {
            each["task_id"] if each["map_index"] < 0 else f"{each['task_id']}[{each['map_index']}]": each["state"]
            for each in self.instances(dag_id, run_id)
        }

    def wait_for_tasks(
        self, dag_id: str, run_id: str, state: str, *task_ids: str, count: int = 1, seconds: float = RUN_SECONDS
    ) -> None:
        """Wait until task instances have a state.

        Args:
            task_ids: of the tasks, those of the whole run if none is given.
            count: how many instances at least.
        """

        def found() -> bool:
            states = [
                each["state"] for each in self.instances(dag_id, run_id) if not task_ids or each["task_id"] in task_ids
            ]
            return states.count(state) >= max(count, len(task_ids))

        wait_until(found, f"{task_ids or 'tasks'} of {dag_id!r} are {state}", seconds, EVERY_SECONDS)

    def instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return one task instance, with its state, `try_number` and `pid`."""
        (found,) = [
            each
            for each in self.instances(dag_id, run_id)
            if (each["task_id"], each["map_index"]) == (task_id, map_index)
        ]
        return found

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return what a task returned, or the XCom of another key."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.get(path, map_index=map_index, deserialize=False, stringify=False)["value"]

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Return the log of one try of a task, a line per event."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.get(path, map_index=map_index, full_content=True)["content"]
        return "\n".join(line if isinstance(line, str) else line["event"] for line in content)

    # ------------------------------------------------------------------ assets and connections

    def asset_events(self, **query: Any) -> list[dict[str, Any]]:
        """Return asset events, the first one first; `source_dag_id` and the like select some."""
        return self.rows("/assets/events", "asset_events", order_by="timestamp", **query)

    def add_connection(self, conn_id: str, conn_type: str, **fields: Any) -> None:
        """Store a connection in the database of the deployment."""
        self.post("/connections", {"connection_id": conn_id, "conn_type": conn_type, **fields})

    def jobs(self, kind: str) -> list[dict[str, Any]]:
        """Return what has reported itself as `SchedulerJob`, `TriggererJob` or `DagProcessorJob`."""
        return self.rows("/jobs", "jobs", job_type=kind)

    @staticmethod
    def _json(response: httpx.Response) -> Any:
        request = response.request
        assert response.is_success, f"{request.method} {request.url}: {response.status_code} {response.text}"
        return response.json() if response.content else None
