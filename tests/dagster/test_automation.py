"""Declarative automation downstream of an observed queue: no edge is lost for good, whatever becomes of the drains.

Dagster's own evaluation decides on the events of real ticks and runs, over a real Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg
import pytest

from dagster_sluicegate import (
    RedisQueueResource,
    build_queue_depth_check,
    build_queue_drain_asset,
    build_queue_observation_sensor,
    build_queue_source_asset,
)
from sluicegate import RedisMessageQueue
from tests.dagster.observing import Automation, fill, stored, tick, versions
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

ORDERS = build_queue_source_asset(spec="orders_queue")
EAGER = dg.AutomationCondition.eager()


def drain(process: Callable[..., None] = lambda messages: None, **options: object) -> dg.AssetsDefinition:
    spec = dg.AssetSpec("drained", deps=[ORDERS], automation_condition=EAGER)
    return build_queue_drain_asset(spec=spec, process=process, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A queue, its observation sensor, a drain downstream of it, and Dagster's automation."""

    resource: RedisQueueResource
    instance: dg.DagsterInstance
    sensor: dg.SensorDefinition
    drained: dg.AssetsDefinition
    automation: Automation

    @classmethod
    def of(
        cls,
        resource: RedisQueueResource,
        instance: dg.DagsterInstance,
        drained: dg.AssetsDefinition,
        attempt_delay_seconds: float = 600,
    ) -> Pipeline:
        sensor = build_queue_observation_sensor(
            name="observed", queue_asset=ORDERS, min_ready=1, attempt_delay_seconds=attempt_delay_seconds
        )
        defs = dg.Definitions(assets=[ORDERS, drained], sensors=[sensor], resources={"queue": resource})
        return cls(resource, instance, sensor, drained, Automation(defs, instance))

    def tick(self) -> list[str]:
        """Evaluate and store one tick of the sensor, and return its new versions."""
        return versions(tick(self.sensor, self.resource, self.instance))

    def requested(self) -> bool:
        return self.automation.requests("drained")

    def run(self, drained: dg.AssetsDefinition | None = None) -> bool:
        """Run the drain as the request does, and return whether it succeeded."""
        assets = [drained or self.drained]
        resources = {"queue": self.resource}
        return dg.materialize(assets, resources=resources, instance=self.instance, raise_on_error=False).success

    def heals(self) -> None:
        """Wait for the attempt that requests the drain: the first that meets nothing which Dagster takes for it."""
        wait_until(lambda: self.tick() and self.requested(), "an attempt that requests the drain")


def test_each_backlog_requests_one_drain(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    pipeline = Pipeline.of(resource, instance, drain())
    for generation in (0, 5):
        fill(queue, 5)
        assert pipeline.tick() == [f"{generation}:0"]
        assert pipeline.requested()
        assert pipeline.tick() == []
        assert not pipeline.requested()
        assert pipeline.run()
        assert pipeline.tick() == []
        assert not pipeline.requested()
    assert queue.depth().ready == queue.depth().in_flight == 0


def test_partial_drains_request_further_ones_until_the_queue_is_empty(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    pipeline = Pipeline.of(resource, instance, drain(max_messages=2), attempt_delay_seconds=0.05)
    fill(queue, 5)
    for _ in range(3):
        pipeline.heals()
        assert pipeline.run()
    assert pipeline.tick() == []
    assert not pipeline.requested()
    assert queue.depth().ready == queue.depth().in_flight == 0
    assert queue.depth().claimed_total == 5


def test_a_drain_that_failed_after_its_claim_is_requested_again(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def fail(messages: list[object]) -> None:
        raise ValueError("broken")

    pipeline = Pipeline.of(resource, instance, drain(), attempt_delay_seconds=0.05)
    fill(queue, 3)
    pipeline.tick()
    assert pipeline.requested()
    assert not pipeline.run(drain(fail))
    pipeline.heals()
    assert stored(instance, "orders_queue")[1].tags["dagster/data_version"] == "3:0"
    assert pipeline.run()
    assert queue.depth().ready == 0


def test_a_drain_that_failed_before_its_claim_is_requested_again(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(name="drained")
    def dies() -> None:
        raise OSError("no such image")

    pipeline = Pipeline.of(resource, instance, drain(), attempt_delay_seconds=0.05)
    fill(queue, 3)
    pipeline.tick()
    assert pipeline.requested()
    assert not pipeline.run(dies)
    pipeline.heals()


def test_an_observation_that_is_evaluated_before_the_drain_ends_is_repeated(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    """The observation and the drain's materialization come in two evaluations."""
    pipeline = Pipeline.of(resource, instance, drain(max_messages=2), attempt_delay_seconds=0.05)
    fill(queue, 5)
    pipeline.tick()
    assert pipeline.requested()
    assert pipeline.run()
    assert not pipeline.requested()
    assert pipeline.tick() == ["2:0"]
    assert pipeline.requested()
    instance.report_runless_asset_event(dg.AssetMaterialization("drained"))  # by another run that found nothing
    assert not pipeline.requested()
    pipeline.heals()


@pytest.mark.parametrize("first", ["observation", "materialization"])
def test_an_observation_that_meets_the_drains_end_in_one_evaluation_is_repeated(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance, first: str
) -> None:
    pipeline = Pipeline.of(resource, instance, drain(max_messages=2), attempt_delay_seconds=0.05)
    fill(queue, 5)
    if first == "observation":
        assert pipeline.tick() == ["0:0"]
    assert pipeline.run()
    if first == "materialization":
        assert pipeline.tick() == ["2:0"]
    assert not pipeline.requested()  # Dagster takes the update for handled
    pipeline.heals()
    assert pipeline.run()
    pipeline.heals()
    assert pipeline.run()
    assert queue.depth().ready == queue.depth().in_flight == 0


def test_a_count_of_publishes_as_version_would_strand_what_a_partial_drain_left(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    """What is not built here, and why: the version says nothing about what was claimed."""
    pipeline = Pipeline.of(resource, instance, drain(max_messages=2))

    def observe() -> None:
        tags = {"dagster/data_version": str(queue.depth().published_total)}
        instance.report_runless_asset_event(dg.AssetObservation("orders_queue", tags=tags))

    fill(queue, 5)
    observe()
    assert pipeline.requested()
    assert pipeline.run()
    for _ in range(3):
        observe()
        assert not pipeline.requested()
    assert queue.depth().ready == 3


def test_on_missing_never_requests_a_drain(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    """Dagster counts an asset as missing from its first evaluation on, which handles it."""
    spec = dg.AssetSpec("drained", deps=[ORDERS], automation_condition=dg.AutomationCondition.on_missing())
    pipeline = Pipeline.of(resource, instance, build_queue_drain_asset(spec=spec, process=lambda messages: None))
    fill(queue, 3)
    assert pipeline.tick() == ["0:0"]
    assert not pipeline.requested()
    assert not pipeline.requested()


def test_a_report_downstream_runs_for_each_new_version(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    """What declarative automation is for: an asset that the queue's state concerns, and that claims nothing."""

    @dg.asset(deps=[ORDERS], automation_condition=EAGER, name="drained")
    def report(queue: RedisQueueResource) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"ready": queue.get_depth().ready})

    pipeline = Pipeline.of(resource, instance, report)
    fill(queue, 3)
    pipeline.tick()
    assert pipeline.requested()
    assert pipeline.run()
    assert not pipeline.requested()
    queue.claim(1)
    assert pipeline.tick() == ["1:0"]
    assert pipeline.requested()


def test_a_runless_check_result_holds_back_what_is_conditioned_on_it(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    check = build_queue_depth_check(asset=ORDERS, max_ready=2, blocking=True)
    condition = EAGER & dg.AutomationCondition.all_deps_blocking_checks_passed()
    spec = dg.AssetSpec("drained", deps=[ORDERS], automation_condition=condition)
    sensor = build_queue_observation_sensor(name="observed", queue_asset=ORDERS, min_ready=1, checks=[check])
    defs = dg.Definitions(
        assets=[ORDERS, build_queue_drain_asset(spec=spec, process=lambda messages: None)],
        asset_checks=[check],
        resources={"queue": resource},
    )
    automation = Automation(defs, instance)
    fill(queue, 3)
    tick(sensor, resource, instance)
    assert not automation.requests("drained")
    queue.claim(1)
    tick(sensor, resource, instance)
    assert automation.requests("drained")


def test_the_documented_example_drains_reports_and_checks(
    queue: RedisMessageQueue, url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(snippet("dagster-queue-asset"), "dagster-queue-asset", "exec"), names)  # noqa: S102
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    resources = {"queue": RedisQueueResource(url=url, queue_name=queue.name)}
    automation = Automation(defs, instance)
    sensor = defs.resolve_sensor_def("orders_observed")

    def materialize(name: str) -> dg.ExecuteInProcessResult:
        return dg.materialize([names[name]], resources=resources, instance=instance)  # type: ignore[list-item]

    assert materialize("published_orders").success
    events = tick(sensor, resources["queue"], instance)
    assert versions(events) == ["0:0"]
    assert len(events) == 3
    assert automation.requests("backlog_report")
    assert materialize("backlog_report").success
    (drained,) = materialize("orders").asset_materializations_for_node("orders")
    assert drained.metadata["dagster/row_count"].value == 1000
    assert tick(sensor, resources["queue"], instance) == []
