"""Every kind of definition works on a group of a stream as on a queue, and never takes one for the other."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import (
    PurgeConfig,
    QueueDrain,
    QueueGate,
    QueuePartitions,
    QueuePublishIOManager,
    RedisQueueResource,
    RedriveConfig,
    build_dead_letter_check,
    build_dead_letter_sensor,
    build_purge_op,
    build_queue_age_check,
    build_queue_check_sensor,
    build_queue_depth_check,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_drain_assets,
    build_queue_drain_job,
    build_queue_drain_op,
    build_queue_gates_sensor,
    build_queue_observation_sensor,
    build_queue_publish_asset,
    build_queue_source_asset,
    build_redrive_op,
    queue_drain_asset,
    queue_has_work,
    queue_snapshot,
    report_drain,
)
from sluicegate import drain
from sluicegate.errors import ConfigurationError, GroupNotFoundError
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.dagster.drains import Storage, numbers
from tests.dagster.helpers import asset_job, look, re_execute, submit
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

_NUMBERS = itertools.count(1)
MakeJob = Callable[..., dg.JobDefinition]


@pytest.fixture
def resource(url: str) -> RedisQueueResource:
    """Return a group of a stream of its own for each test."""
    return RedisQueueResource(
        url=url,
        stream_name=f"events {next(_NUMBERS)}",
        group="billing",
        start="beginning",
        visibility_timeout_seconds=60,
    )


@pytest.fixture
def stream(resource: RedisQueueResource) -> Iterator[RedisStreamQueue]:
    """Yield the producer's end of that stream."""
    with resource.get_stream() as stream:
        yield stream


@pytest.fixture
def group(resource: RedisQueueResource) -> Iterator[ConsumerGroup]:
    """Yield the group of the resource, which exists."""
    with resource.get_group() as group:
        group.create("beginning")
        yield group


def label(group: ConsumerGroup) -> str:
    return f"stream:{group.name}:{group.group_name}"


def fill(stream: RedisStreamQueue, count: int) -> None:
    stream.publish_many({"n": number} for number in range(count))


@dg.asset
def target() -> None: ...


# ---------------------------------------------------------------------------------------------------- drains


def _asset(resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    return asset_job([build_queue_drain_asset(spec="drained", process=numbers, **options)], resources)


def _decorated(resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    return asset_job([queue_drain_asset(spec="drained", **options)(numbers)], resources)


def _assets(resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    names = {name: options.pop(name) for name in ("queue_name", "stream_name", "group") if name in options}
    drains = [QueueDrain(spec="drained", **names)]
    return asset_job(build_queue_drain_assets(drains=drains, process=numbers, **options), resources)


def _op(resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    op = build_queue_drain_op(name="drained", process=numbers, **options)

    @dg.job(resource_defs=resources, executor_def=dg.in_process_executor)
    def drain_job() -> None:
        op()

    return drain_job


def _job(resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    job = build_queue_drain_job(name="drained", process=numbers, executor_def=dg.in_process_executor, **options)
    return dg.Definitions(jobs=[job], resources=resources).resolve_job_def("drained")


FORMS = pytest.mark.parametrize("make_job", [_asset, _decorated, _assets, _op, _job])


@FORMS
def test_every_form_of_a_drain_drains_its_group_and_no_other(
    stream: RedisStreamQueue, resource: RedisQueueResource, make_job: MakeJob
) -> None:
    fill(stream, 3)
    storage = Storage()
    resources = {"queue": resource, "io_manager": storage}

    assert make_job(resources, batch_size=2).execute_in_process().success
    assert make_job(resources, batch_size=2, group="audit").execute_in_process().success

    assert storage.stored == [[[0, 1], [2]]] * 2
    for name in ("billing", "audit"):
        with resource.get_group(name) as group:
            assert (group.depth().ready, group.depth().in_flight, group.stats().acked) == (0, 0, 3)


@FORMS
def test_a_re_execution_takes_over_what_a_dead_try_held(
    stream: RedisStreamQueue,
    resource: RedisQueueResource,
    group: ConsumerGroup,
    instance: dg.DagsterInstance,
    make_job: MakeJob,
) -> None:
    fill(stream, 3)
    job = make_job({"queue": resource, "io_manager": Storage(lambda: 1 / 0)})
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not failed.success
    assert group.depth().ready == 3, "what an IO manager could not store returns"
    storage = Storage()

    re_execute(make_job({"queue": resource, "io_manager": storage}), instance, failed.run_id)

    assert storage.stored == [[[0, 1, 2]]]
    assert group.stats().acked == 3


def test_the_materialization_names_the_stream_and_the_group(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup
) -> None:
    fill(stream, 5)
    result = _asset({"queue": resource, "io_manager": Storage()}).execute_in_process()

    (materialization,) = result.asset_materializations_for_node("drained")
    found = {name: value.value for name, value in materialization.metadata.items()}
    assert found["sluicegate/queue"] == label(group)
    assert (found["sluicegate/stream"], found["sluicegate/group"]) == (stream.name, "billing")
    assert (found["dagster/row_count"], found["sluicegate/ready_left"]) == (5, 0)


def test_a_run_of_a_partition_drains_the_stream_of_that_partition(url: str) -> None:
    regions = QueuePartitions(keys=["eu", "us"], stream_name=f"regions {next(_NUMBERS)}", group="billing")
    resource = RedisQueueResource(url=url, start="beginning")
    for number, region in enumerate(regions.keys):
        with resource.get_stream(regions.queue_of(region)) as stream:
            stream.publish({"n": number})
    storage = Storage()
    drained = build_queue_drain_asset(spec="drained", process=numbers, queue_partitions=regions)

    assert dg.materialize([drained], resources={"queue": resource, "io_manager": storage}, partition_key="us").success

    assert storage.stored == [[[1]]]
    assert resource.get_depth(stream_name=regions.queue_of("eu"), group="billing").ready == 1


class FakePipes:
    """What a process that Dagster started reports with."""

    def __init__(self) -> None:
        self.extras = {"sluicegate/run_id": "run"}
        self.log = logging.getLogger("pipes")
        self.reported: list[dict[str, Any]] = []

    def report_asset_materialization(self, metadata: Any = None) -> None:
        self.reported.append(dict(metadata))


def test_a_process_of_its_own_drains_a_group_and_reports_its_names(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup
) -> None:
    context = dg.build_asset_context()
    assert not queue_has_work(context, resource)
    fill(stream, 3)
    assert queue_has_work(context, resource)
    pipes = FakePipes()

    report_drain(pipes, group, lambda run_id: drain(group, lambda messages: None, run_id=run_id))

    (found,) = pipes.reported
    assert (found["sluicegate/queue"], found["sluicegate/acked"]) == (label(group), 3)
    assert (found["sluicegate/stream"], found["sluicegate/group"]) == (stream.name, "billing")


# ---------------------------------------------------------------------------------------------------- sensors


def test_the_gate_of_a_group_has_run_keys_tags_and_an_id_of_its_own(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    gate = build_queue_depth_sensor(name="gate", target=target, min_ready=3)
    assert "0 messages ready in group 'billing' of stream" in look(gate, resource, instance)[1]
    fill(stream, 3)

    request, _ = look(gate, resource, instance)

    assert request is not None
    assert request.run_key == f"{label(group)}:0:0"
    assert request.tags["sluicegate/queue"] == label(group)
    assert (request.tags["sluicegate/stream"], request.tags["sluicegate/group"]) == (stream.name, "billing")
    assert request.tags["sluicegate/queue_id"].startswith(f"{label(group)}@")
    submit(instance, request)
    assert "1 of at most 1 runs in flight" in look(gate, resource, instance)[1]
    other = build_queue_depth_sensor(name="other", target=target, min_ready=3, group="audit")
    counted, _ = look(other, resource, instance)
    assert counted is not None, "the run of one group does not hold the gate of another one shut"
    assert counted.run_key == f"stream:{stream.name}:audit:0:0"


def test_the_generation_moves_when_the_group_claims(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    gate = build_queue_depth_sensor(name="gate", target=target, min_ready=1)
    fill(stream, 3)
    group.claim(2).ack()

    request, _ = look(gate, resource, instance)

    assert request is not None
    assert request.run_key == f"{label(group)}:2:0"
    assert request.tags["sluicegate/ready"] == "1"


def test_one_sensor_gates_a_queue_a_stream_of_that_name_and_several_groups(
    url: str, resource: RedisQueueResource, stream: RedisStreamQueue, instance: dg.DagsterInstance
) -> None:
    name = stream.name
    fill(stream, 2)
    with resource.get_queue(name) as queue:
        queue.publish("a")
    with resource.get_group("audit") as audit:
        audit.claim(1).ack()
    sensor = build_queue_gates_sensor(
        name="gates",
        queues=[
            QueueGate(target=target, queue_name=name, min_ready=1),
            QueueGate(target=target, min_ready=1),
            QueueGate(target=target, group="audit", min_ready=1),
            QueueGate(target=target, stream_name=name, group="late", min_ready=5),
        ],
    )
    defs = dg.Definitions(assets=[target], sensors=[sensor])
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource}, definitions=defs)

    data = sensor.evaluate_tick(context)

    assert [request.run_key for request in data.run_requests or []] == [
        f"{name}:0:0",
        f"stream:{name}:billing:0:0",
        f"stream:{name}:audit:1:0",
    ]
    assert json.loads(data.cursor or "")["queues"][f"stream:{name}:late"] == "2 ready, 0 runs in flight"
    queue.purge("pending")


def test_a_look_creates_a_group_that_has_a_start_and_names_the_fix_otherwise(
    url: str, stream: RedisStreamQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    fill(stream, 2)
    gate = build_queue_depth_sensor(name="gate", target=target, min_ready=1)
    request, _ = look(gate, resource, instance)
    assert request is not None
    assert request.tags["sluicegate/ready"] == "2"
    late = RedisQueueResource(url=url, stream_name=stream.name, group="late", start="end")
    assert look(gate, late, instance)[0] is None
    fill(stream, 1)
    found, _ = look(gate, late, instance)
    assert found is not None
    assert found.tags["sluicegate/ready"] == "1"
    unknown = RedisQueueResource(url=url, stream_name=stream.name, group="unknown")
    with pytest.raises(GroupNotFoundError, match=r"has no group 'unknown'.*start"):
        look(gate, unknown, instance)


def test_a_sensor_of_ones_own_sees_the_group(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    fill(stream, 4)
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})

    seen = queue_snapshot(context, resource=resource)

    assert (seen.queue, seen.depth.ready, seen.run_key) == (label(group), 4, f"{label(group)}:0:0")
    assert seen.why_not(min_ready=5).startswith("4 messages ready in group 'billing' of stream")
    assert queue_snapshot(context, resource=resource, group="audit").queue == f"stream:{stream.name}:audit"


def die(stream: RedisStreamQueue, group: ConsumerGroup, count: int) -> None:
    fill(stream, count)
    lease = group.claim(count)
    lease.bury(lease.messages, reason="broken", error=ValueError("no order"))


def test_dead_letters_of_a_group_request_a_run(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    sensor = build_dead_letter_sensor(name="dead", target=target, min_dead=2)
    die(stream, group, 2)

    request, _ = look(sensor, resource, instance)

    assert request is not None
    assert request.run_key == f"{label(group)}:dead:2:0"
    run = submit(instance, request, dg.DagsterRunStatus.SUCCESS)
    assert f"run {run.run_id} has seen them" in look(sensor, resource, instance)[1]


# ---------------------------------------------------------------------------------------------------- publish


def produced() -> Iterator[dict[str, int]]:
    yield from ({"n": number} for number in range(5))


def test_a_publish_asset_publishes_to_the_stream_and_a_retry_only_what_is_missing(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    asset = build_queue_publish_asset(spec="published", produce=produced, batch_size=2)
    job = asset_job([asset], {"queue": resource})

    first = job.execute_in_process(instance=instance)
    re_execute(job, instance, first.run_id)

    (materialization,) = first.asset_materializations_for_node("published")
    found = {name: value.value for name, value in materialization.metadata.items()}
    assert found["sluicegate/queue"] == f"stream:{stream.name}"
    assert (found["sluicegate/accepted"], found["sluicegate/length"], found["dagster/row_count"]) == (5, 5, 5)
    assert "sluicegate/ready" not in found
    assert stream.info().length == 5
    assert [message.json()["n"] for message in group.claim(10)] == [0, 1, 2, 3, 4]


def test_an_io_manager_publishes_to_a_stream(
    url: str, stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup
) -> None:
    @dg.asset(io_manager_key="to_stream")
    def made() -> list[dict[str, int]]:
        return [{"n": 1}, {"n": 2}]

    queue = RedisQueueResource(url=url, queue_name="elsewhere")
    manager = QueuePublishIOManager(queue=queue, stream_name=stream.name)

    assert dg.materialize([made], resources={"queue": queue, "to_stream": manager}).success

    assert group.depth().ready == 2


@pytest.mark.parametrize("later", [{"delay_seconds": 5}])
def test_a_stream_delivers_at_once(resource: RedisQueueResource, later: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a stream delivers at once; leave delay_seconds and due_at out"):
        build_queue_publish_asset(spec="published", produce=produced, stream_name="orders", **later)
    asset = build_queue_publish_asset(spec="published", produce=produced, **later)

    result = asset_job([asset], {"queue": resource}).execute_in_process(raise_on_error=False)

    assert "a stream delivers at once" in str(result.failure_data_for_node("published").error)  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------- assets


def test_a_group_is_observed_and_checked(
    stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup, instance: dg.DagsterInstance
) -> None:
    orders = build_queue_source_asset(spec="orders", min_ready=1)
    checks = [
        build_queue_depth_check(asset=orders, max_ready=1),
        build_queue_age_check(asset=orders, max_age_seconds=3600),
        build_dead_letter_check(asset=orders),
    ]
    sensors = [
        build_queue_observation_sensor(name="observed", queue_asset=orders, min_ready=1),
        build_queue_check_sensor(name="checked", checks=checks),
    ]
    fill(stream, 3)

    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})
    (observation,) = sensors[0].evaluate_tick(context).asset_events
    evaluated = sensors[1].evaluate_tick(context)
    defs = dg.Definitions(
        assets=[orders],
        asset_checks=checks,
        jobs=[dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())],
        resources={"queue": resource},
    )
    result = defs.resolve_job_def("checks").execute_in_process(instance=instance)

    assert observation.tags["dagster/data_version"] == "0:0"
    values = {name: value.value for name, value in observation.metadata.items()}
    assert values["sluicegate/queue_id"].startswith(f"{label(group)}@")
    assert (values["sluicegate/stream"], values["sluicegate/group"], values["sluicegate/ready"]) == (
        stream.name,
        "billing",
        3,
    )
    assert {event.check_name: event.passed for event in evaluated.asset_events} == {
        "queue_depth": False,
        "queue_age": True,
        "dead_letters": True,
    }
    assert {each.check_name: each.passed for each in result.get_asset_check_evaluations()} == {
        "queue_depth": False,
        "queue_age": True,
        "dead_letters": True,
    }


def test_checks_of_another_group_are_refused_by_a_sensor() -> None:
    check = build_queue_depth_check(asset="orders", max_ready=1, stream_name="orders", group="audit")
    same = build_queue_check_sensor(name="checked", checks=[check], stream_name="orders", group="audit")
    assert same.name == "checked"
    with pytest.raises(ConfigurationError, match="is one of the group 'audit' of the stream 'orders', and the sensor"):
        build_queue_check_sensor(name="checked", checks=[check], stream_name="orders", group="billing")


# ---------------------------------------------------------------------------------------------------- administration


def run_op(op: dg.OpDefinition, resource: RedisQueueResource, config: dg.Config) -> dict[str, Any]:
    @dg.job(resource_defs={"queue": resource}, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    report: dict[str, Any] = job.execute_in_process(run_config=dg.RunConfig(ops={op.name: config})).output_for_node(
        op.name
    )
    return report


def test_dead_letters_of_a_group_are_redriven_and_purged(
    url: str, stream: RedisStreamQueue, resource: RedisQueueResource, group: ConsumerGroup
) -> None:
    die(stream, group, 3)
    anywhere = RedisQueueResource(url=url, queue_name="elsewhere")
    named: dict[str, Any] = {"stream_name": stream.name, "group": "billing"}

    moved = run_op(build_redrive_op(), resource, RedriveConfig(limit=1))
    counted = run_op(build_purge_op(), anywhere, PurgeConfig(states=["dead"], dry_run=True, **named))
    deleted = run_op(build_purge_op(), anywhere, PurgeConfig(states=["dead"], dry_run=False, **named))

    assert (moved["redriven"], moved["queue"], moved["stream"]) == (1, label(group), stream.name)
    assert (counted["total"], deleted["total"], deleted["group"]) == (2, 2, "billing")
    assert (group.depth().ready, group.depth().dead) == (1, 0)


# ---------------------------------------------------------------------------------------------------- resource


def test_a_url_is_enough_to_drain_a_group(url: str, stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    fill(stream, 2)
    named = url.replace("embedded://", "embedded+sluicegate://", 1)
    resource = RedisQueueResource(url=f"{named}?stream={stream.name.replace(' ', '+')}&group=billing")
    storage = Storage()

    assert _asset({"queue": resource, "io_manager": storage}).execute_in_process().success

    assert storage.stored == [[[0, 1]]]
    assert group.stats().acked == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue_name": "orders", "max_length": 5}, "queue 'orders': max_length is an option of a stream"),
        ({"queue_name": "orders", "start": "end"}, "queue 'orders': start is an option of a stream"),
        ({"stream_name": "orders", "max_pending_length": 5}, "stream 'orders': max_pending_length is an option of a q"),
        ({"stream_name": "orders", "start": "middle"}, "start"),
        ({"stream_name": "orders", "max_length": 0}, "max_length"),
    ],
)
def test_options_that_do_not_fit_are_refused_when_the_definitions_load(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        RedisQueueResource(**{"url": "redis://localhost", **options}).get_resource_definition()


def test_each_method_yields_what_it_names(url: str, resource: RedisQueueResource, client: redis.Redis) -> None:
    with (
        resource.get_stream(max_length=7) as stream,
        resource.get_group() as group,
        resource.get_consumer() as consumer,
    ):
        assert (type(stream), type(group), type(consumer)) == (RedisStreamQueue, ConsumerGroup, ConsumerGroup)
        assert (consumer.name, consumer.group_name) == (stream.name, "billing")
        assert consumer.session.config.visibility_timeout_seconds == 60
    words = r"names group 'billing' of stream .*, which is no queue; use get_consumer"
    with pytest.raises(ConfigurationError, match=words), resource.get_queue():
        pass
    queue = RedisQueueResource(url=url, queue_name="orders")
    words = "names queue 'orders', which is no stream; set its stream_name"
    with pytest.raises(ConfigurationError, match=words), queue.get_stream():
        pass
    with pytest.raises(TypeError, match="max_pending_length"), resource.get_group(max_pending_length=1):
        pass


# ---------------------------------------------------------------------------------------------------- documentation


def test_the_documented_groups_are_gated_and_drained(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "orders"}
    code = snippet("dagster-stream").replace('stream_name="orders"', 'stream_name="documented stream"')
    exec(compile(code, "dagster-stream", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    (sensor,) = defs.sensors
    resource = defs.resources["queue"]
    job = defs.resolve_implicit_global_asset_job_def()
    published, billed = dg.AssetKey("published_orders"), dg.AssetKey("billed")
    assert job.execute_in_process(instance=instance, asset_selection=[published]).success
    with resource.process_config_and_initialize_cm() as configured:
        context = dg.build_sensor_context(instance=instance, resources={"queue": configured}, definitions=defs)
        (request,) = sensor.evaluate_tick(context).run_requests
    assert (request.run_key, request.asset_selection) == ("stream:documented stream:billing:0:0", [billed])

    result = job.execute_in_process(instance=instance, asset_selection=[billed, dg.AssetKey("audited")])

    for node in ("billed", "audited"):
        (materialization,) = result.asset_materializations_for_node(node)
        assert materialization.metadata["dagster/row_count"].value == 100
    client.delete(*client.scan_iter("sluicegate:{documented stream}*"))
