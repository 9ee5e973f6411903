"""Checks of a queue: what they pass, what they show, and that a sensor reports their changes only."""

from __future__ import annotations

import dagster as dg
import pytest

from dagster_sluicegate import (
    RedisQueueResource,
    build_dead_letter_check,
    build_queue_age_check,
    build_queue_check_sensor,
    build_queue_depth_check,
    build_queue_observation_sensor,
    build_queue_source_asset,
)
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.observing import evaluate, fill, stored, tick, versions
from tests.support.servers import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

ORDERS = build_queue_source_asset(spec="orders_queue")
DEPTH = build_queue_depth_check(asset=ORDERS, max_ready=2)
AGE = build_queue_age_check(asset=ORDERS, max_age_seconds=0.05)
DEAD = build_dead_letter_check(asset=ORDERS)


def execute(
    definition: dg.AssetChecksDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    """Execute a check by a run."""
    defs = dg.Definitions(
        assets=[ORDERS],
        asset_checks=[definition],
        jobs=[dg.define_asset_job("checks", selection=dg.AssetSelection.checks(definition))],
        resources={"queue": resource},
    )
    return defs.resolve_job_def("checks").execute_in_process(instance=instance, raise_on_error=False)


def check(
    definition: dg.AssetChecksDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> dg.AssetCheckEvaluation:
    """Execute a check by a run, and return its evaluation."""
    (evaluation,) = execute(definition, resource, instance).get_asset_check_evaluations()
    return evaluation


def bury(queue: RedisMessageQueue, count: int) -> None:
    fill(queue, count)
    lease = queue.claim(count)
    for message in lease.messages:
        lease.bury(message, error="broken")


# -------------------------------------------------------------------------------------------------- executed checks


def test_the_depth_check_fails_above_its_bound(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(queue, 2)
    assert check(DEPTH, resource, instance).passed
    fill(queue, 1)
    failed = check(DEPTH, resource, instance)
    assert not failed.passed
    assert failed.severity is dg.AssetCheckSeverity.ERROR
    assert failed.description == f"Messages ready in {queue.name!r}: 3; at most 2 pass."
    values = {name: value.value for name, value in failed.metadata.items()}
    assert values.pop("sluicegate/queue_id").startswith(f"{queue.name}@")
    assert values.pop("sluicegate/oldest_ready_age_seconds") >= 0
    assert values == {
        "sluicegate/ready": 3,
        "sluicegate/in_flight": 0,
        "sluicegate/dead": 0,
        "sluicegate/delayed": 0,
        "sluicegate/max_ready": 2,
    }


def test_the_age_check_fails_once_the_oldest_message_has_waited_too_long(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    empty = check(AGE, resource, instance)
    assert (empty.passed, empty.description) == (True, f"No message is ready in {queue.name!r}.")
    fill(queue, 1)
    queue.pause()
    wait_until(lambda: (queue.depth().oldest_ready_age_seconds or 0) > 0.05, "the message is old")
    failed = check(AGE, resource, instance)
    assert not failed.passed
    assert failed.description is not None
    assert failed.description.startswith(f"The oldest message in {queue.name!r} has been ready for ")
    assert failed.description.endswith(" s; at most 0.05 s pass (the queue is paused).")


def test_the_dead_letter_check_fails_with_the_first_one_unless_some_are_allowed(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    assert check(DEAD, resource, instance).passed
    bury(queue, 1)
    failed = check(DEAD, resource, instance)
    assert (failed.passed, failed.description) == (False, f"Dead letters in {queue.name!r}: 1; at most 0 pass.")
    allowed = build_dead_letter_check(asset=ORDERS, max_dead=1, severity=dg.AssetCheckSeverity.WARN)
    assert check(allowed, resource, instance).passed
    bury(queue, 1)
    warned = check(allowed, resource, instance)
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_redis_that_is_down_fails_the_step_of_the_check(instance: dg.DagsterInstance) -> None:
    down = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    result = (
        dg.materialize(
            [ORDERS, DEPTH], resources={"queue": down}, instance=instance, selection=[], raise_on_error=False
        )
        if False
        else execute(DEPTH, down, instance)
    )
    assert not result.success
    assert result.get_asset_check_evaluations() == []
    (key,) = DEPTH.check_keys
    record = instance.get_latest_asset_check_evaluation_record(key)
    assert record is not None
    assert record.status.value == "PLANNED"  # of a run that failed, which the UI shows as an execution failure


def test_a_blocking_check_keeps_the_drain_from_running(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(deps=["orders_queue"])
    def report() -> None: ...

    blocking = build_queue_depth_check(asset=ORDERS, max_ready=2, blocking=True)
    defs = dg.Definitions(
        assets=[ORDERS, report],
        asset_checks=[blocking],
        jobs=[dg.define_asset_job("all", selection=dg.AssetSelection.assets("orders_queue", "report"))],
        resources={"queue": resource},
    )
    job = defs.resolve_job_def("all")
    assert job.execute_in_process(instance=instance).asset_materializations_for_node("report")
    fill(queue, 3)
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert not result.asset_materializations_for_node("report")


def test_an_asset_that_gets_a_key_prefix_is_still_observed_and_checked(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    key = dg.AssetKey(["eu", "orders_queue"])
    moved = {dg.AssetKey("orders_queue"): key}
    defs = dg.Definitions(
        assets=[ORDERS.with_attributes(asset_key_replacements=moved)],
        asset_checks=[DEPTH.with_attributes(asset_key_replacements=moved)],
        jobs=[dg.define_asset_job("all", selection=[key])],
        resources={"queue": resource},
    )
    fill(queue, 3)
    result = defs.resolve_job_def("all").execute_in_process(instance=instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.asset_key, evaluation.passed) == (key, False)
    assert [event.tags["dagster/data_version"] for event in stored(instance, "eu/orders_queue")] == ["0:0"]


def test_a_test_may_call_a_check_with_its_resource(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    fill(queue, 3)
    result = DEPTH(dg.build_asset_check_context(), queue=resource)
    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed


# ------------------------------------------------------------------------------------------ evaluations without a run


def changes(events: object) -> list[tuple[str, bool]]:
    return [
        (event.check_name, event.passed)
        for event in events  # type: ignore[attr-defined]
        if isinstance(event, dg.AssetCheckEvaluation)
    ]


def test_the_sensor_reports_changes_only(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_check_sensor(name="checked", checks=[DEPTH, DEAD])
    assert changes(tick(sensor, resource, instance)) == [("queue_depth", True), ("dead_letters", True)]
    assert tick(sensor, resource, instance) == []
    fill(queue, 3)
    events, reason = evaluate(sensor, resource, instance)
    assert reason.startswith(f"3 messages ready in {queue.name!r}")
    assert reason.endswith("; 1 of 2 checks pass, failing: queue_depth; 1 changed.")
    (event,) = tick(sensor, resource, instance)
    assert (event.asset_key, event.check_name, event.passed) == (dg.AssetKey("orders_queue"), "queue_depth", False)
    assert event.severity is dg.AssetCheckSeverity.ERROR
    assert event.blocking is False
    assert event.metadata["sluicegate/ready"].value == 3
    fill(queue, 1)
    assert tick(sensor, resource, instance) == []  # it fails as before, with another number
    lease = queue.claim(4)
    assert changes(tick(sensor, resource, instance)) == [("queue_depth", True)]
    lease.bury(error="broken")
    assert changes(tick(sensor, resource, instance)) == [("dead_letters", False)]
    assert len(events) == 1


def test_the_sensor_compares_with_executed_checks_too(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_check_sensor(name="checked", checks=[DEPTH])
    fill(queue, 3)
    assert not check(DEPTH, resource, instance).passed
    assert tick(sensor, resource, instance) == []
    down = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders")
    assert not execute(DEPTH, down, instance).success
    assert changes(tick(sensor, resource, instance)) == [("queue_depth", False)]  # the failed execution is settled
    assert tick(sensor, resource, instance) == []


def test_two_code_locations_that_check_two_queues_under_one_key_repeat_nothing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_check_sensor(name="checked", checks=[DEPTH])
    other = RedisQueueResource(url=resource.url, queue_name=f"{queue.name} of another location")
    fill(queue, 3)
    assert changes(tick(sensor, resource, instance)) == [("queue_depth", False)]
    assert changes(tick(sensor, other, instance)) == [("queue_depth", True)]
    assert tick(sensor, resource, instance) == []
    assert tick(sensor, other, instance) == []


def test_the_observation_sensor_evaluates_checks_from_the_same_look(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_queue_observation_sensor(
        name="observed",
        queue_asset=ORDERS,
        min_ready=4,
        checks=[DEPTH, build_queue_age_check(asset=ORDERS, max_age_seconds=600)],
    )
    fill(queue, 3)
    events = tick(sensor, resource, instance)
    assert (changes(events), versions(events)) == ([("queue_depth", False), ("queue_age", True)], [])
    fill(queue, 1)
    events = tick(sensor, resource, instance)
    assert (changes(events), versions(events)) == ([], ["0:0"])


# ----------------------------------------------------------------------------------------------------------- options


def test_descriptions_name_queue_bound_and_what_to_do() -> None:
    texts = {spec.name: spec.description for definition in (DEPTH, AGE, DEAD) for spec in definition.check_specs}
    assert texts["queue_depth"] == (
        "Passes while at most 2 messages are ready in the queue of the resource `queue`. Look for a paused queue, for "
        "a consumer or sensor that does not run, and for failing runs of the drain; otherwise add consumers or raise "
        "the bound."
    )
    assert (texts["queue_age"] or "").startswith(
        "Passes while the oldest ready message in the queue of the resource `queue` has waited for at most 0.05 s."
    )
    assert texts["dead_letters"] == (
        "Passes while the queue of the resource `queue` has no dead letters. Read their errors with "
        '`queue.peek(state="dead")`, remove the cause, then redrive the dead letters or purge them.'
    )


def test_an_asset_has_several_checks_by_name() -> None:
    near = build_queue_depth_check(asset="orders_queue", max_ready=1, name="queue_depth_near")
    defs = dg.Definitions(
        assets=[ORDERS],
        asset_checks=[DEPTH, near, AGE, DEAD],
        sensors=[build_queue_check_sensor(name="checked", checks=[DEPTH, near, AGE, DEAD])],
        resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
    )
    dg.Definitions.validate_loadable(defs)
    keys = defs.resolve_asset_graph().get(dg.AssetKey("orders_queue")).check_keys
    assert {key.name for key in keys} == {"queue_depth", "queue_depth_near", "queue_age", "dead_letters"}


@pytest.mark.parametrize(
    ("build", "options", "words"),
    [
        (
            build_queue_depth_check,
            {"max_ready": -1},
            "check 'queue_depth' of 'orders': max_ready must be an int from 0",
        ),
        (build_queue_depth_check, {"max_ready": 1.5}, "check 'queue_depth' of 'orders': max_ready must be an int"),
        (build_queue_age_check, {"max_age_seconds": 0}, "check 'queue_age' of 'orders': max_age_seconds must be"),
        (
            build_dead_letter_check,
            {"max_dead": None},
            "check 'dead_letters' of 'orders': max_dead must be an int from 0",
        ),
        (
            build_dead_letter_check,
            {"name": "no spaces"},
            "name must consist of A-Z, a-z, 0-9 and _, not 'no spaces'",
        ),
        (build_dead_letter_check, {"severity": "WARN"}, "severity must be a dagster.AssetCheckSeverity, not 'WARN'"),
        (build_dead_letter_check, {"blocking": 1}, "check 'dead_letters' of 'orders': blocking must be True or False"),
        (
            build_dead_letter_check,
            {"blocking": True, "severity": dg.AssetCheckSeverity.WARN},
            "blocking=True needs severity=AssetCheckSeverity.ERROR",
        ),
        (build_dead_letter_check, {"asset": None}, "check 'dead_letters': give an asset or the key of one, not None"),
        (build_dead_letter_check, {"queue_name": ""}, "check 'dead_letters' of 'orders': queue_name: "),
        (build_dead_letter_check, {"resource_key": "a b"}, "resource_key must be a Python identifier, not 'a b'"),
    ],
)
def test_bad_options_are_refused(build: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        build(**({"asset": "orders"} | options))  # type: ignore[operator]


def test_a_sensor_and_its_checks_name_one_queue(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    named = build_queue_depth_check(asset=ORDERS, max_ready=2, queue_name=queue.name)
    fill(queue, 3)
    without_name = RedisQueueResource(url=resource.url)
    assert not check(named, without_name, instance).passed
    sensor = build_queue_check_sensor(name="checked", checks=[named], queue_name=queue.name)
    assert sensor.description == (
        f"Evaluates queue_depth of the queue {queue.name!r} without a run, and reports changes; reads only."
    )
    assert tick(sensor, without_name, instance) == []
    elsewhere = build_queue_depth_check(asset=ORDERS, max_ready=2, resource_key="other")
    for other, words in (
        (named, f"the check 'queue_depth' is one of the queue {queue.name!r}, and the sensor reads the queue of"),
        (
            elsewhere,
            "is one of the queue of the resource 'other', and the sensor reads the queue of the resource 'queue'",
        ),
    ):
        with pytest.raises(ConfigurationError, match=words):
            build_queue_check_sensor(name="checked", checks=[other])
        with pytest.raises(ConfigurationError, match=words):
            build_queue_observation_sensor(name="observed", queue_asset=ORDERS, min_ready=1, checks=[other])


def test_a_sensor_needs_checks_of_a_queue() -> None:
    @dg.asset_check(asset="orders_queue")
    def other() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    for checks, words in (
        ([], "sensor 'checked': checks is empty; give the checks that it evaluates"),
        ([other], "sensor 'checked': the check 'other' is not one of a queue; build it with build_queue_depth_check"),
        ([DEPTH, DEPTH], "the check 'queue_depth' of 'orders_queue' is there twice; give each check a name of its own"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            build_queue_check_sensor(name="checked", checks=checks)
