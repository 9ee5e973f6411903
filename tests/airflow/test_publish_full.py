"""A publish that waits in the triggerer while its queue is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import TaskDeferred

from airflow_provider_sluicegate.compat import AirflowException, AirflowFailException
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.triggers._poller import DepthPoller
from sluicegate import RedisMessageQueue
from sluicegate.bulk.publisher import PublishStoppedError
from tests.airflow.deployment import Deployment, states
from tests.airflow.instance import Instance

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "publishes_much.py"
ROOM = {"status": "room", "waiting": 0}


def operator(queue: RedisMessageQueue, **arguments: Any) -> RedisQueuePublishOperator:
    given = {
        "messages": lambda: ({"id": number % 11} for number in range(12)),  # the last is a duplicate of the first
        "deduplication_key": "id",
        "batch_size": 3,
        "queue_options": {"max_pending_length": 5},
        "deferrable": True,
    }
    return RedisQueuePublishOperator(task_id="publish", queue_name=queue.name, **(given | arguments))


def drained(queue: RedisMessageQueue) -> list[int]:
    with queue.claim(100) as lease:
        return [message.json()["id"] for message in lease]


def test_a_full_queue_defers_until_a_batch_fits_and_each_message_is_published_once(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    context: Any = {"ti": instance}
    found: list[int] = []
    with pytest.raises(TaskDeferred) as full:
        operator(queue).execute(context)
    deferred, waits, report = full.value, 0, None
    while report is None:
        waits += 1
        assert deferred.trigger.serialize()[1]["max_waiting"] == 2
        assert deferred.trigger.serialize()[1]["initial_delay_seconds"] > 0, "not before Airflow knows of the deferral"
        assert queue.depth().pending <= 5
        found += drained(queue)
        try:
            report = operator(queue).execute_complete(context, ROOM, **(deferred.kwargs or {}))
        except TaskDeferred as again:
            deferred = again

    found += drained(queue)
    assert found == list(range(11))
    assert (report["published"], report["duplicates"]) == (11, 1)
    assert waits == 2
    assert report["first_message_id"] != report["last_message_id"]


def test_without_it_a_full_queue_fails_the_task(queue: RedisMessageQueue, instance: Instance) -> None:
    with pytest.raises(PublishStoppedError, match="max_pending_length"):
        operator(queue, deferrable=False).execute({"ti": instance})  # type: ignore[typeddict-item]


def test_airflow_resumes_it_while_another_task_drains(
    airflow_deployment: Deployment, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    original = DepthPoller.run_once

    async def drains(poller: Any) -> float:
        found.extend(drained(queue))
        return await original(poller)

    monkeypatch.setattr(DepthPoller, "run_once", drains)
    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["publishes_much"].test(run_conf={"queue": queue.name})

    assert states(run) == {"publish": "success"}
    assert sorted(found + drained(queue)) == list(range(20))
    assert queue.stats().published == 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"queue_options": {}}, "max_pending_length"),
        ({"deduplication_key": None}, 'deduplication_key="position" serves'),
        (
            {"queue_options": {"max_pending_length": 5, "deduplication_policy": "until_acked"}},
            'policy "window"',
        ),
        ({"batch_size": 6}, "batch_size=6 exceeds max_pending_length=5"),
    ],
)
def test_what_would_publish_twice_or_wait_for_ever_is_refused(
    queue: RedisMessageQueue, instance: Instance, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(AirflowFailException, match=says):
        operator(queue, **arguments).execute({"ti": instance})  # type: ignore[typeddict-item]

    assert queue.depth().published_total == 0


@pytest.mark.parametrize(("is_permanent", "failure"), [(True, AirflowFailException), (False, AirflowException)])
def test_an_error_of_the_triggerer_fails_the_task(
    queue: RedisMessageQueue, instance: Instance, is_permanent: bool, failure: type[Exception]
) -> None:
    event = {"status": "error", "error": "the text", "is_permanent": is_permanent}

    with pytest.raises(failure, match="the text") as found:
        operator(queue).execute_complete({"ti": instance}, event, {})  # type: ignore[typeddict-item]

    assert type(found.value) is failure
