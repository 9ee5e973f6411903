"""The job sensor: one run for each set of jobs that has ended, without a worker that waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_batch_sensor, build_job_sensor
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from sluicegate.jobs import Job, JobKind, RedisJobQueue
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

MAILS = dg.AssetKey("sent_mails")


@dg.asset
def report() -> None: ...


@pytest.fixture
def jobs(resource: RedisQueueResource) -> Iterator[RedisJobQueue]:
    """Yield the queue of jobs of the test."""
    with resource.get_jobs(default_kind=JobKind(max_attempts=1)) as jobs:
        yield jobs


class Ticks:
    """Ticks of a sensor, each with the cursor of the last one."""

    def __init__(self, sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance) -> None:
        self.sensor, self.resource, self.instance = sensor, resource, instance
        self.cursor: str | None = None
        self.reason = ""

    def tick(self) -> Sequence[dg.RunRequest]:
        context = dg.build_sensor_context(
            instance=self.instance, resources={"queue": self.resource}, cursor=self.cursor
        )
        data = self.sensor.evaluate_tick(context)
        self.cursor, self.reason = data.cursor, data.skip_message or ""
        return data.run_requests or []


def sensor_of(**options: Any) -> dg.SensorDefinition:
    chosen = {"asset": MAILS} if "job_ids" not in options else {}
    return build_job_sensor(**{"name": "mails_sent", "target": report, **chosen, **options})


def record(instance: dg.DagsterInstance, ids: list[str]) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(MAILS, metadata={"sluicegate/job_ids": ids}))


def enqueue(jobs: RedisJobQueue, count: int) -> list[str]:
    return [jobs.enqueue({"to": number}) for number in range(count)]


def complete(jobs: RedisJobQueue, count: int) -> None:
    with jobs.claim_jobs(count) as lease:
        for job in lease.jobs:
            job.complete({"sent": True})


def end_of(jobs: RedisJobQueue, ids: list[str]) -> str:
    ends = [job.ended_at for job in jobs.get_many(ids).values()]
    return f"{max(end.timestamp() for end in ends if end is not None) * 1000:.0f}"


def test_one_run_is_requested_when_all_jobs_of_a_materialization_have_ended(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    ids = enqueue(jobs, 3)
    record(instance, ids)
    assert ticks.tick() == []
    assert "has 3 of 3 jobs left" in ticks.reason
    complete(jobs, 1)
    assert jobs.cancel(ids[1:2])
    assert ticks.tick() == []
    assert "has 1 of 3 jobs left" in ticks.reason
    complete(jobs, 1)

    (request,) = ticks.tick()

    name = request.tags["sluicegate/job_set"]
    assert request.run_key == f"jobs:{jobs.name}:{name}:{end_of(jobs, ids)}"
    assert (request.tags["sluicegate/jobs_total"], request.tags["sluicegate/jobs_failed"]) == ("3", "0")
    assert request.tags["sluicegate/queue_id"].endswith("/jobs")
    assert ticks.tick() == []


def fail(jobs: RedisJobQueue) -> None:
    with jobs.claim_jobs(1) as lease:
        for job in lease.jobs:
            job.fail(ValueError("no such address"))


def test_a_failed_job_that_is_tried_again_requests_another_run(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(), resource, instance)
    ids = enqueue(jobs, 1)
    record(instance, ids)
    fail(jobs)
    (first,) = ticks.tick()
    assert first.tags["sluicegate/jobs_failed"] == "1"
    assert ticks.tick() == []
    jobs.redrive()
    assert ticks.tick() == []
    complete(jobs, 1)

    (second,) = ticks.tick()

    assert second.run_key != first.run_key
    assert second.tags["sluicegate/jobs_failed"] == "0"


def test_failed_jobs_hold_the_run_back_where_that_is_asked_for(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(sensor_of(max_failed=0), resource, instance)
    record(instance, enqueue(jobs, 1))
    fail(jobs)
    assert ticks.tick() == []
    assert "has ended with 1 failed job, more than 0" in ticks.reason
    jobs.redrive()
    complete(jobs, 1)

    assert len(ticks.tick()) == 1


def test_sets_may_be_given_or_named_by_a_function(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sets: dict[str, list[str]] = {"monday": enqueue(jobs, 2)}

    def config(_: dg.SensorEvaluationContext, found: Mapping[str, Job]) -> dict[str, Any]:
        return {"ops": {"report": {"config": {"done": sorted(job.status for job in found.values())}}}}

    ticks = Ticks(sensor_of(job_ids=lambda context: sets, run_config_fn=config), resource, instance)
    assert ticks.tick() == []
    sets["tuesday"] = enqueue(jobs, 1)
    complete(jobs, 2)

    (request,) = ticks.tick()

    assert request.tags["sluicegate/job_set"] == "monday"
    assert request.run_config == {"ops": {"report": {"config": {"done": ["completed", "completed"]}}}}
    assert ticks.tick() == []
    complete(jobs, 1)
    assert [request.tags["sluicegate/job_set"] for request in ticks.tick()] == ["tuesday"]
    given = Ticks(sensor_of(job_ids={"never": ["unknown"]}), resource, instance)
    assert given.tick() == []
    assert given.reason == f"1 open in {jobs.name!r}: 'never' has no job yet."


def test_looking_changes_nothing_in_redis(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    def everything() -> dict[bytes, Any]:
        return {key: client.dump(key) for key in sorted(client.scan_iter(f"sluicegate:{{{jobs.name}}}*"))}

    record(instance, enqueue(jobs, 2))
    complete(jobs, 1)
    before = everything()

    Ticks(sensor_of(), resource, instance).tick()

    assert everything() == before


def test_a_batch_of_jobs_is_awaited_by_the_sensor_of_batches(
    jobs: RedisJobQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    jobs.enqueue_many([{"to": 1}, {"to": 2}], batch_id="monday")
    ticks = Ticks(build_batch_sensor(name="mails", target=report, batch_ids=["monday"]), resource, instance)
    assert ticks.tick() == []
    complete(jobs, 2)

    (request,) = ticks.tick()

    assert request.tags["sluicegate/batch_total"] == "2"


def test_the_resource_gives_its_limits_to_the_jobs_of_no_kind(url: str) -> None:
    plain = RedisQueueResource(url=url, queue_name="mails")
    strict = RedisQueueResource(url=url, queue_name="mails", max_delivery_count=1, visibility_timeout_seconds=7)
    with plain.get_jobs() as jobs, strict.get_jobs(kinds={"slow": JobKind(max_attempts=9)}) as others:
        assert jobs.session.config.max_delivery_count == JobKind().max_attempts
        assert others.session.config.visibility_timeout_seconds == 7
        assert jobs.name == others.name == "mails"


def test_redis_that_is_away_fails_the_tick(instance: dg.DagsterInstance) -> None:
    resource = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="mails")
    record(instance, ["one"])

    with pytest.raises(RedisUnavailableError):
        Ticks(sensor_of(), resource, instance).tick()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"asset": None}, "give either asset, which enqueues the jobs, or job_ids, their ids by set"),
        ({"job_ids": {"a": ["1"]}}, "give either asset"),
        ({"asset": None, "job_ids": {"a": ["1"]}, "same_partition": True}, "same_partition needs asset"),
        ({"max_failed": -1}, "max_failed"),
        ({"max_sets": 0}, "max_sets"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"sensor 'mails_sent': {words}"):
        build_job_sensor(**{"name": "mails_sent", "target": report, "asset": MAILS, **options})


def test_the_documented_report_runs_when_its_jobs_have_ended(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "mails"}
    exec(compile(snippet("dagster-jobs"), "dagster-jobs", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    (sensor,) = defs.sensors
    job = defs.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("sent_mails")]).success
    with defs.resources["queue"].process_config_and_initialize_cm() as configured:
        ticks = Ticks(sensor, configured, instance)
        assert ticks.tick() == []
        with configured.get_jobs() as jobs:
            complete(jobs, 2)
        (request,) = ticks.tick()
    assert request.tags["sluicegate/jobs_total"] == "2"
    client.delete(*client.scan_iter("sluicegate:{documented jobs}*"))
