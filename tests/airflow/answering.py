"""Answer the request for a person, through Airflow's REST API, while a DAG runs in this process."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.support.waiting import wait_until

REQUEST_SECONDS = 60.0


@dataclass
class Request:
    """What a person was shown."""

    body: str = ""


def can_wait_for_a_person() -> bool:
    """Return whether `dag.test()` waits for the answer. Below Airflow 3.3 the trigger of the request fails in it."""
    from airflow.utils.state import TaskInstanceState

    return hasattr(TaskInstanceState, "AWAITING_INPUT")


@contextmanager
def answered_at_once(task: Any, choice: str, *, before: Callable[[], None]) -> Iterator[Request]:
    """Let a task take the answer instead of asking, where `dag.test()` cannot wait."""
    seen = Request()

    def execute(context: Any) -> Any:
        seen.body = context["task"].body
        before()
        event = {"chosen_options": [choice], "params_input": {}, "responded_at": datetime.now(UTC)}
        return type(task).execute_complete(context["task"], context, {**event, "responded_by_user": None})

    task.execute = execute
    yield seen


@contextmanager
def answered(choice: str, *, before: Callable[[], None]) -> Iterator[Request]:
    """Wait for one request while the block runs, call `before`, and answer with the choice."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    seen, errors = Request(), []

    def answer() -> None:
        try:
            with TestClient(create_app(apps="core"), raise_server_exceptions=False) as client:
                token = client.get("/auth/token").json()["access_token"]
                client.headers["Authorization"] = f"Bearer {token}"
                ask(client)
        except BaseException as error:
            errors.append(error)
            _thread.interrupt_main()  # the run would wait for its answer for ever

    def ask(client: Any) -> None:
        base = "/api/v2/dags/~/dagRuns/~/hitlDetails"
        found: list[dict[str, Any]] = []

        def is_asked() -> bool:
            response = client.get(base, params={"response_received": False})
            # The run writes into the same database, whose lock a request may not get in time.
            found[:] = response.json()["hitl_details"] if response.status_code == 200 else []
            return bool(found)

        wait_until(is_asked, "a task asks a person", REQUEST_SECONDS)
        (request,) = found
        seen.body = request["body"]
        before()
        instance = request["task_instance"]
        place = (
            f"/api/v2/dags/{instance['dag_id']}/dagRuns/{instance['dag_run_id']}/taskInstances/{instance['task_id']}"
        )
        answers: list[str] = []

        def is_answered() -> bool:
            response = client.patch(f"{place}/-1/hitlDetails", json={"chosen_options": [choice]})
            answers.append(response.text)
            return bool(response.status_code == 200)

        try:
            wait_until(is_answered, "the answer is stored", REQUEST_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {answers[-1]}") from None

    thread = threading.Thread(target=answer, name="answering")
    thread.start()
    try:
        yield seen
    except KeyboardInterrupt:
        if not errors:
            raise
    finally:
        thread.join(REQUEST_SECONDS)
    if errors:
        raise errors[0]
