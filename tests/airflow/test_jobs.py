"""A task enqueues jobs, and a sensor waits for their end without a worker. Real Redis."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.sdk.module_loading import import_string

from airflow_provider_sluicegate.operators.jobs import RedisJobEnqueueOperator
from airflow_provider_sluicegate.sensors.jobs import RedisJobSensor
from airflow_provider_sluicegate.triggers.jobs import RedisJobTrigger
from sluicegate.jobs import JobKind, RedisJobQueue
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.airflow.test_triggers import run, started
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.airflow

FAILS_ONCE = JobKind(max_attempts=1)


@pytest.fixture
def jobs(embedded_url: str, connect: Connect, queue_name: str) -> Iterator[RedisJobQueue]:
    """Yield a queue of jobs of this test on the embedded server, which is the default connection too."""
    connect(extra={"url": embedded_url})
    with RedisJobQueue(queue_name, url=embedded_url, default_kind=FAILS_ONCE) as jobs:
        yield jobs


def enqueued(jobs: RedisJobQueue, count: int) -> list[str]:
    return jobs.enqueue_many([{"n": number} for number in range(count)]).ids


def complete_all(jobs: RedisJobQueue, result: Any = None) -> None:
    """Complete what waits, each job with its number or with the given result."""
    with jobs.claim_jobs(1000) as lease:
        lease.complete_many({job: result or {"square": job.payload["n"] ** 2} for job in lease.jobs})


def sensor(jobs: RedisJobQueue, **arguments: Any) -> RedisJobSensor:
    return RedisJobSensor(task_id="done", queue_name=jobs.name, poke_interval=0.01, **arguments)


def enqueue(jobs: RedisJobQueue, instance: Instance, **arguments: Any) -> Any:
    operator = RedisJobEnqueueOperator(task_id="jobs", queue_name=jobs.name, **arguments)
    return operator.execute({"ti": instance})  # type: ignore[arg-type, typeddict-item]


# ---------------------------------------------------------------------- the sensor


def test_it_waits_until_all_have_ended_and_hands_their_results_on(jobs: RedisJobQueue) -> None:
    ids = enqueued(jobs, 3)
    gate = sensor(jobs, job_ids=ids)
    assert gate.poke({}).is_done is False  # type: ignore[typeddict-item]
    with jobs.claim_jobs(1) as lease:
        lease.jobs[0].complete("first")
    assert gate.poke({}).is_done is False  # type: ignore[typeddict-item]
    complete_all(jobs)

    value = gate.poke({}).xcom_value  # type: ignore[typeddict-item]

    assert value == {
        "queue": jobs.name, "total": 3, "completed": 3, "failed": 0, "cancelled": 0, "failed_ids": [],
        "results": {ids[0]: "first", ids[1]: {"square": 1}, ids[2]: {"square": 4}}, "left_out": 0,
    }  # fmt: skip


def test_results_stay_in_redis_beyond_the_limit_of_an_xcom(jobs: RedisJobQueue) -> None:
    ids = enqueued(jobs, 10)
    complete_all(jobs, {"text": "x" * 100})

    value = sensor(jobs, job_ids=ids, max_xcom_bytes=500).poke({}).xcom_value  # type: ignore[typeddict-item]

    assert len(json.dumps(value["results"])) <= 500
    assert list(value["results"]) == ids[: len(value["results"])]
    assert value["left_out"] == 10 - len(value["results"]) > 0
    assert value["completed"] == 10


@pytest.mark.parametrize("result", [float("-0"), {"__class__": "x"}, [[1, None], "\0"], "ü", 5, False])
def test_a_result_that_airflow_would_change_is_text(jobs: RedisJobQueue, result: Any) -> None:
    (job_id,) = enqueued(jobs, 1)
    with jobs.claim_jobs(1) as lease:
        lease.jobs[0].complete(result)

    found = sensor(jobs, job_ids=[job_id]).poke({}).xcom_value["results"][job_id]  # type: ignore[typeddict-item]

    assert found == result or json.loads(found) == result
    assert "\0" not in json.dumps(found, ensure_ascii=False)


def test_failed_and_cancelled_jobs_fail_it_or_are_counted(jobs: RedisJobQueue, instance: Instance) -> None:
    ids = enqueued(jobs, 3)
    jobs.cancel(ids[2])
    with jobs.claim_jobs(1) as lease:
        lease.jobs[0].fail("CANARY")
    complete_all(jobs)

    with pytest.raises(
        AirflowFailException, match=rf"of 3 jobs, 1 failed and 1 were cancelled: {ids[0]}, {ids[2]}"
    ) as no:
        sensor(jobs, job_ids=ids).execute({"ti": instance})  # type: ignore[typeddict-item]
    value = sensor(jobs, job_ids=ids, on_failed="ignore").execute({"ti": instance})  # type: ignore[typeddict-item]

    assert (value["completed"], value["failed"], value["cancelled"]) == (1, 1, 1)
    assert "CANARY" not in str(no.value) + json.dumps(value)


def test_a_job_that_is_not_known_fails_at_once(jobs: RedisJobQueue, instance: Instance) -> None:
    ids = enqueued(jobs, 1)

    for deferrable in (False, True):
        with pytest.raises(AirflowFailException, match="1 of 2 jobs are not known, such as 'other'"):
            sensor(jobs, job_ids=[*ids, "other"], deferrable=deferrable).execute({"ti": instance})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give exactly one of job_ids and batch_id"),
        ({"job_ids": ["a"], "batch_id": "b"}, "give exactly one of job_ids and batch_id"),
        ({"job_ids": "a"}, "job_ids must be a list of ids, not a str; give the output of the task"),
        ({"job_ids": [1]}, "must be a str"),
        ({"batch_id": "x" * 2000}, "batch_id has 2000 characters"),
        ({"job_ids": ["a"], "on_failed": "retry"}, "on_failed"),
        ({"job_ids": ["a"], "max_xcom_bytes": 0}, "max_xcom_bytes"),
    ],
)
def test_what_cannot_work_fails_at_once(
    jobs: RedisJobQueue, instance: Instance, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(AirflowFailException, match=says):
        sensor(jobs, **arguments).execute({"ti": instance})  # type: ignore[typeddict-item]


def test_no_jobs_are_no_wait(jobs: RedisJobQueue, instance: Instance) -> None:
    assert sensor(jobs, job_ids=[]).execute({"ti": instance})["total"] == 0  # type: ignore[typeddict-item]


def test_it_waits_in_the_triggerer_for_hundreds_of_jobs_by_one_poller(jobs: RedisJobQueue, instance: Instance) -> None:
    ids = enqueued(jobs, 1200)
    gate = sensor(jobs, job_ids=ids, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        gate.execute({"ti": instance})  # type: ignore[typeddict-item]
    trigger: Any = deferred.value.trigger
    trigger.initial_delay_seconds = 0

    async def work() -> dict[str, Any]:
        async with started(trigger) as (waiting,):
            await asyncio.to_thread(complete_all, jobs)
            assert not waiting.done(), "200 are left"
            await asyncio.to_thread(complete_all, jobs)
            return await waiting

    event = run(work)
    assert event == {"status": "ended"}, "results do not pass the triggerer"
    assert gate.execute_complete({"ti": instance}, event)["completed"] == 1200  # type: ignore[typeddict-item]


def test_its_trigger_is_rebuilt_from_plain_values() -> None:
    trigger = RedisJobTrigger(queue_name="reports", job_ids=("a", "b"), poll_interval_seconds=2.5)

    path, arguments = trigger.serialize()

    assert arguments["job_ids"] == ["a", "b"]
    assert import_string(path)(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)


# ---------------------------------------------------------------------- the operator


def test_a_task_enqueues_jobs_and_returns_their_ids(jobs: RedisJobQueue, instance: Instance) -> None:
    ids = enqueue(jobs, instance, payloads=[{"n": 1}, {"n": 2}], kind="pdf", headers={"tenant": "acme"})

    found = jobs.get_many(ids)
    assert [(found[one].status, found[one].kind, found[one].payload) for one in ids] == [
        ("waiting", "pdf", {"n": 1}),
        ("waiting", "pdf", {"n": 2}),
    ]
    assert "batch_id" not in instance.pushed


def test_a_retry_rejoins_the_batch_and_gets_the_same_ids(jobs: RedisJobQueue, instance: Instance) -> None:
    arguments = {"payloads": [{"n": number} for number in range(5)], "batch_id": "b/1"}

    first, second = (enqueue(jobs, instance, **arguments) for _ in range(2))

    assert first == second
    assert (len(set(first)), jobs.depth().ready) == (5, 5)
    assert instance.pushed["batch_id"] == "b/1"
    complete_all(jobs)
    value = sensor(jobs, batch_id="b/1").execute({"ti": instance})  # type: ignore[typeddict-item]
    assert (value["total"], value["completed"], value["failed"]) == (5, 5, 0)
    assert "results" not in value


def test_ids_that_do_not_fit_need_a_batch(jobs: RedisJobQueue, instance: Instance) -> None:
    payloads = [{"n": number} for number in range(50)]

    with pytest.raises(
        AirflowFailException, match="the ids of 50 jobs do not fit into max_xcom_bytes=300; give batch_id"
    ):
        enqueue(jobs, instance, payloads=payloads, max_xcom_bytes=300)
    assert jobs.depth().ready == 0
    assert enqueue(jobs, instance, payloads=payloads, max_xcom_bytes=300, batch_id="b") is None
    assert jobs.depth().ready == 50


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"payloads": None}, "payloads is None"),
        ({"payloads": "text"}, "payloads must be an iterable of payloads"),
        ({"payloads": [{"n": 1}], "batch_id": ""}, "batch_id is ''; if it is a template, it rendered to nothing"),
        ({"payloads": [{"n": 1}], "queue_options": {"max_delivery_count": 3}}, "max_attempts"),
    ],
)
def test_jobs_that_cannot_be_enqueued_fail_at_once(
    jobs: RedisJobQueue, instance: Instance, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(AirflowFailException, match=says):
        enqueue(jobs, instance, **arguments)
    assert jobs.depth().ready == 0


def test_no_payload_skips_if_asked_to(jobs: RedisJobQueue, instance: Instance) -> None:
    assert enqueue(jobs, instance, payloads=[]) == []
    with pytest.raises(AirflowSkipException, match="there was no job to enqueue"):
        enqueue(jobs, instance, payloads=[], skip_if_empty=True)


def test_the_documentations_dag_waits_for_workers(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "make_reports.py"
    file.write_text(snippet("airflow-jobs"))

    with RedisJobQueue("reports", url=embedded_url) as jobs, airflow_deployment.dags([file]) as dags:

        def work() -> None:
            wait_until(lambda: jobs.depth().ready == 2, "the jobs wait")
            with jobs.claim_jobs(2) as lease:
                lease.complete_many({job: f"{job.payload['customer']}.{job.kind}" for job in lease.jobs})

        worker = threading.Thread(target=work)
        worker.start()
        done = dags["make_reports"].test()
        worker.join()

    assert states(done) == {"jobs": "success", "made": "success", "mail": "success"}
    assert xcoms(done)["mail"] == ["acme.pdf", "initech.pdf"]
    assert "customer" not in json.dumps(airflow_deployment.rendered(done, "jobs"))
