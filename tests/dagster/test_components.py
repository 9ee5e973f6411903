"""The components build what the factories build, out of a `defs.yaml` that a person or a scaffolder wrote."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from dagster_sluicegate import (
    QueueGate,
    RedisQueueResource,
    build_batch_sensor,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_gates_sensor,
    build_queue_publish_asset,
    build_queue_source_asset,
    components,
)
from dagster_sluicegate.components import (
    QueueBatchSensorComponent,
    QueueDepthSensorComponent,
    QueueDrainAssetComponent,
    QueueGatesSensorComponent,
    QueuePublishAssetComponent,
    QueueSourceAssetComponent,
    RedisQueueResourceComponent,
)
from dagster_sluicegate.components.gates_sensor import QueueGateSpec
from tests.dagster.component_projects import RESOURCE, project
from tests.dagster.helpers import resource_snapshot
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

COMPONENTS = [getattr(components, name) for name in components.__all__]
# Values that no YAML can hold, or that make no sense in a file.
NOT_IN_YAML = {
    build_queue_publish_asset: {"due_at", "check_specs"},
    build_queue_drain_asset: {"queue_partitions"},
}
# What a component calls otherwise, or groups under one name.
FACTORIES: list[tuple[type, Callable[..., Any], dict[str, str]]] = [
    (
        QueueDrainAssetComponent,
        build_queue_drain_asset,
        {"spec": "asset", "pool": "op", "op_tags": "op"},
    ),
    (
        QueuePublishAssetComponent,
        build_queue_publish_asset,
        {"spec": "asset", "partitions_def": "asset", "pool": "op", "op_tags": "op", "backfill_policy": "op"},
    ),
    (QueueSourceAssetComponent, build_queue_source_asset, {"spec": "asset"}),
    (QueueDepthSensorComponent, build_queue_depth_sensor, {}),
    (QueueGatesSensorComponent, build_queue_gates_sensor, {}),
    (QueueGateSpec, QueueGate, {}),
    (QueueBatchSensorComponent, build_batch_sensor, {}),
]
HANDLER = """
import json
from pathlib import Path

import dagster as dg

def process(messages):
    Path("drained.json").write_text(json.dumps([message.json()["n"] for message in messages]))

def summed(messages, ctx):
    ctx.add_check_result(dg.AssetCheckResult(passed=True))
    return sum(message.json()["n"] for message in messages)

def both(results):
    return {"batches": len(results), "sum": sum(results)}

def produce():
    for number in (1, 1, 2):
        yield {"order_id": number, "n": number}

def run_config(context, depth):
    return {"ops": {"drain": {"config": {"ready": depth.ready}}}}
"""


@pytest.fixture
def redis_url(url: str, monkeypatch: pytest.MonkeyPatch, resource: RedisQueueResource) -> str:
    """Put the URL into the environment, and return the name of a queue of the test's own."""
    monkeypatch.setenv("REDIS_URL", url)
    assert resource.queue_name is not None
    return resource.queue_name


def resource_yaml(queue_name: str) -> str:
    return RESOURCE.replace("queue_name: orders", f"queue_name: {queue_name}")


def drain_yaml(attributes: str) -> str:
    return "type: dagster_sluicegate.components.QueueDrainAssetComponent\nattributes:\n" + textwrap.indent(
        textwrap.dedent(attributes).strip(), "  "
    )


def sensor_yaml(attributes: str) -> str:
    return drain_yaml(attributes).replace("QueueDrainAssetComponent", "QueueDepthSensorComponent")


def gates_yaml(attributes: str) -> str:
    return drain_yaml(attributes).replace("QueueDrainAssetComponent", "QueueGatesSensorComponent")


def materialize(defs: dg.Definitions, instance: dg.DagsterInstance, *keys: str) -> dg.ExecuteInProcessResult:
    job = defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey.from_user_string(key) for key in keys] or None
    )


def requests(defs: dg.Definitions, sensor: str, instance: dg.DagsterInstance) -> Sequence[dg.RunRequest]:
    """Evaluate one tick of a sensor and return its requests."""
    context = dg.build_sensor_context(instance=instance, resources=dict(defs.resources or {}), definitions=defs)
    return defs.resolve_sensor_def(sensor).evaluate_tick(context).run_requests or []


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_field_of_the_yaml_is_described_and_has_an_example(component: type[dg.Component]) -> None:
    model = component.get_model_cls()
    assert model is not None
    schema = model.model_json_schema()
    own = [definition for name, definition in schema.get("$defs", {}).items() if name.endswith("SpecModel")]
    for properties in [schema["properties"], *(each["properties"] for each in own)]:
        for name, field in properties.items():
            assert len(field.get("description", "").split()) >= 4, f"{name} has no description"
            assert field.get("examples"), f"{name} has no example"
    assert component.get_spec().description
    assert component.get_spec().owners == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_example_of_the_docstring_is_valid(component: type[dg.Component], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://localhost:6379/0")
    text = inspect.cleandoc(component.__doc__ or "").partition(".. code-block:: yaml\n")[2]
    orders = drain_yaml("asset: {key: orders}\nprocess: .handler:process")
    files = {"orders/defs.yaml": orders, "orders/handler.py": HANDLER, "queue/defs.yaml": RESOURCE}
    kind = yaml.safe_load(text)["type"]
    files = {name: content for name, content in files.items() if kind not in content}
    with project({**files, "example/handler.py": HANDLER, "example/defs.yaml": text}) as defs:
        assert dg.AssetKey("orders") in defs.resolve_asset_graph().get_all_asset_keys()


def test_the_resource_component_has_every_field_of_the_resource() -> None:
    for name, field in RedisQueueResource.model_fields.items():
        declared = RedisQueueResourceComponent.model_fields[name]
        assert declared.description
        if name != "url":
            assert (declared.default, declared.annotation) == (field.default, field.annotation)


@pytest.mark.parametrize(("component", "factory", "renamed"), FACTORIES)
def test_a_component_has_every_option_of_its_factory_with_its_default(
    component: type[dg.Model], factory: Callable[..., Any], renamed: dict[str, str]
) -> None:
    for name, parameter in inspect.signature(factory).parameters.items():
        if name in NOT_IN_YAML.get(factory, ()):
            continue
        field = component.model_fields[renamed.get(name, name)]
        if name in renamed or parameter.default is inspect.Parameter.empty:
            continue
        default = parameter.default
        assert field.default == (sorted(default) if isinstance(default, (frozenset, tuple)) else default), name


def test_the_ui_gets_the_name_of_the_variable_and_not_its_value(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@localhost:6379/0")
    with project({"queue/defs.yaml": RESOURCE}) as defs:
        snapshot = resource_snapshot(defs, "queue")
    assert "REDIS_URL" in repr(snapshot.configured_values["url"])
    assert "s3cret" not in repr(snapshot)


def test_the_resource_component_sets_what_its_yaml_says(redis_url: str, url: str) -> None:
    text = resource_yaml(redis_url) + "  resource_key: shop\n  max_pending_length: 10\n  deduplication_key: order_id\n"
    with project({"queue/defs.yaml": text}) as defs:
        found = defs.resources["shop"]
        assert isinstance(found, RedisQueueResource)
        with found.process_config_and_initialize().get_queue() as queue:
            report = queue.publish_many([{"order_id": 1}, {"order_id": 1}, {"order_id": 2}])
            assert (report.accepted, report.duplicates) == (2, 1)
    assert found.max_pending_length == 10


def test_a_url_without_a_password_may_be_plain_text(url: str) -> None:
    text = RESOURCE.replace("url_env_var: REDIS_URL", f"url: {url}")
    with project({"queue/defs.yaml": text}) as defs, defs.resources["queue"].get_queue("plain") as queue:
        assert queue.depth().ready == 0


def test_the_resource_of_a_component_can_be_used_by_another() -> None:
    component = RedisQueueResourceComponent(url="redis://localhost:6379/0", queue_name="orders", max_delivery_count=3)
    assert isinstance(component.resource, RedisQueueResource)
    assert (component.resource.queue_name, component.resource.max_delivery_count) == ("orders", 3)


def test_gate_drain_and_queue_out_of_yaml_drain_what_was_published(
    redis_url: str,
    queue: Any,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "queue/defs.yaml": resource_yaml(redis_url),
        "orders/defs.yaml": drain_yaml("asset: {key: shop/orders, group_name: shop}\nprocess: .handler:process"),
        "orders/handler.py": HANDLER,
        "gate/defs.yaml": sensor_yaml("name: orders_gate\ntarget: key:shop/orders\nmin_ready: 3"),
    }
    queue.publish_many({"n": n} for n in (1, 2, 3))
    with project(files) as defs:
        (request,) = requests(defs, "orders_gate", instance)
        assert request.run_key == f"{redis_url}:0:0"
        result = materialize(defs, instance)
    assert result.success
    (event,) = result.asset_materializations_for_node("shop__orders")
    assert event.asset_key == dg.AssetKey(["shop", "orders"])
    assert event.metadata["dagster/row_count"].value == 3
    assert json.loads((tmp_path / "drained.json").read_text()) == [1, 2, 3]
    assert (queue.depth().ready, queue.depth().in_flight) == (0, 0)


def test_the_drain_component_sets_what_its_yaml_says(redis_url: str, queue: Any, instance: dg.DagsterInstance) -> None:
    attributes = """
        asset: {key: orders, owners: [team:shop], kinds: [parquet]}
        process: .handler.summed
        combine: .handler:both
        batch_size: 2
        max_messages: 4
        io_manager_key: memory
        resource_key: shop
        queue_asset: shop/queue
        on_empty: materialize
        check_specs:
          - {name: complete, asset: orders}
        lease_seconds: 30
        retry_policy: {max_retries: 3, delay: 10, backoff: EXPONENTIAL, jitter: FULL}
        op: {pool: redis, tags: {team: shop}}
    """
    memory = "import dagster as dg\ndefs = dg.Definitions(resources={'memory': dg.mem_io_manager})\n"
    files = {
        "queue/defs.yaml": resource_yaml(redis_url) + "  resource_key: shop\n",
        "orders/defs.yaml": drain_yaml(attributes),
        "orders/handler.py": HANDLER,
        "memory.py": memory,
    }
    queue.publish_many({"n": n} for n in (1, 2, 3, 4, 5))
    with project(files) as defs:
        drain = defs.resolve_assets_def("orders")
        result = materialize(defs, instance)
        assert result.asset_value("orders") == {"batches": 2, "sum": 10}
    assert (drain.op.pool, drain.op.tags["team"]) == ("redis", "shop")
    assert drain.op.retry_policy == dg.RetryPolicy(
        max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL
    )
    (spec,) = drain.specs
    assert (spec.kinds, list(spec.owners)) == ({"parquet"}, ["team:shop"])
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["shop", "queue"])]
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]
    assert queue.depth().ready == 1


def test_a_drain_of_another_queue_of_the_server_materializes_without_messages(
    redis_url: str, instance: dg.DagsterInstance
) -> None:
    attributes = "asset: {key: orders}\nprocess: .handler:process\nqueue_name: empty_here\non_empty: materialize"
    files = {
        "queue/defs.yaml": resource_yaml(redis_url),
        "orders/defs.yaml": drain_yaml(attributes),
        "orders/handler.py": HANDLER,
    }
    with project(files) as defs:
        result = materialize(defs, instance)
    (event,) = result.asset_materializations_for_node("orders")
    assert event.metadata["sluicegate/queue"].value == "empty_here"


def test_a_drain_is_of_the_kind_redis_unless_its_yaml_gives_kinds() -> None:
    component = QueueDrainAssetComponent(asset=dg.AssetSpec("orders"), process=print)
    (drain,) = component.build_queue_defs().assets or []
    assert isinstance(drain, dg.AssetsDefinition)
    assert [spec.kinds for spec in drain.specs] == [{"redis"}]


def test_a_process_may_be_in_any_module_and_named_with_a_dot(redis_url: str) -> None:
    for name in ("tests.dagster.component_handlers:process", "tests.dagster.component_handlers.process"):
        files = {
            "queue/defs.yaml": RESOURCE,
            "orders/defs.yaml": drain_yaml(f"asset: {{key: orders}}\nprocess: {name}"),
        }
        with project(files) as defs:
            assert len(defs.resolve_asset_graph().assets_defs) == 1


def test_the_sensor_component_sets_what_its_yaml_says(redis_url: str, queue: Any, instance: dg.DagsterInstance) -> None:
    attributes = """
        name: orders_gate
        job: .jobs:drain_orders
        max_age_seconds: 0.001
        minimum_interval_seconds: 60
        run_tags: {team: shop}
        run_config_fn: .handler:run_config
        default_status: RUNNING
        max_runtime_seconds: 600
        description: Drains the orders.
    """
    jobs = """
        import dagster as dg

        @dg.op
        def drain(context): ...

        @dg.job
        def drain_orders():
            drain()
    """
    files = {
        "queue/defs.yaml": resource_yaml(redis_url),
        "gate/defs.yaml": sensor_yaml(attributes),
        "gate/handler.py": HANDLER,
        "gate/jobs.py": jobs,
    }
    queue.publish("one")
    with project(files) as defs:
        sensor = defs.resolve_sensor_def("orders_gate")
        (request,) = requests(defs, "orders_gate", instance)
    assert (sensor.minimum_interval_seconds, sensor.default_status) == (60, dg.DefaultSensorStatus.RUNNING)
    assert sensor.description == "Drains the orders."
    assert sensor.job.name == "drain_orders"
    assert request.run_config == {"ops": {"drain": {"config": {"ready": 1}}}}
    assert (request.tags["team"], request.tags["dagster/max_runtime"]) == ("shop", "600")


def test_the_publish_component_sets_what_its_yaml_says(
    redis_url: str, queue: Any, instance: dg.DagsterInstance
) -> None:
    attributes = """
        asset:
          key: published
          partitions_def: {type: daily, start_date: "2026-01-01"}
        produce: .handler:produce
        deduplication_key: [order_id]
        headers: {source: shop}
        batch_size: 2
        retry_policy: {max_retries: 2}
        op: {pool: redis, tags: {team: shop}, backfill_policy: {type: single_run}}
    """
    files = {
        "queue/defs.yaml": resource_yaml(redis_url),
        "published/defs.yaml": drain_yaml(attributes).replace("QueueDrainAsset", "QueuePublishAsset"),
        "published/handler.py": HANDLER,
    }
    with project(files) as defs:
        (publish,) = defs.resolve_asset_graph().assets_defs
        job = defs.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance, partition_key="2026-01-02")
    (event,) = result.asset_materializations_for_node("published")
    assert (event.metadata["sluicegate/accepted"].value, event.metadata["sluicegate/duplicates"].value) == (2, 1)
    assert [message.headers for message in queue.peek(2)] == [{"source": "shop"}] * 2
    assert (publish.op.pool, publish.op.tags["team"]) == ("redis", "shop")
    assert publish.op.retry_policy == dg.RetryPolicy(max_retries=2)
    assert publish.backfill_policy == dg.BackfillPolicy.single_run()
    assert [spec.kinds for spec in publish.specs] == [{"redis"}]


def test_the_queue_is_an_asset_with_the_checks_that_its_yaml_gives(
    redis_url: str, queue: Any, instance: dg.DagsterInstance
) -> None:
    attributes = """
        asset: {key: orders_queue, deps: [published]}
        checks:
          - {max_ready: 1, severity: WARN}
          - {max_age_seconds: 3600, name: waits}
          - {max_dead: 0, blocking: true}
    """
    files = {
        "queue/defs.yaml": resource_yaml(redis_url),
        "orders_queue/defs.yaml": drain_yaml(attributes).replace("QueueDrainAsset", "QueueSourceAsset"),
    }
    queue.publish_many({"n": n} for n in range(2))
    with project(files) as defs:
        graph = defs.resolve_asset_graph()
        assert graph.get(dg.AssetKey("orders_queue")).parent_keys == {dg.AssetKey("published")}
        checks = defs.asset_checks or []
        job = dg.Definitions(
            assets=defs.assets,
            asset_checks=checks,
            resources=defs.resources,
            jobs=[dg.define_asset_job("check", selection=dg.AssetSelection.all_asset_checks())],
        ).resolve_job_def("check")
        result = job.execute_in_process(instance=instance)
    found = {each.check_name: (each.passed, each.severity.value) for each in result.get_asset_check_evaluations()}
    assert found == {"queue_depth": (False, "WARN"), "waits": (True, "ERROR"), "dead_letters": (True, "ERROR")}


def test_the_gates_component_requests_a_run_for_each_queue_that_is_deep_enough(
    redis_url: str, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    gates = """
        name: shop_gates
        queues:
          - {target: key:orders, queue_name: orders_here, min_ready: 2}
          - {target: key:returns, queue_name: returns_here, min_ready: 1}
          - {target: key:returns, queue_name: quiet_here, max_age_seconds: 60}
        run_tags: {team: shop}
    """
    files = {
        "queue/defs.yaml": RESOURCE,
        "orders/defs.yaml": drain_yaml("asset: {key: orders}\nprocess: .handler:process"),
        "orders/handler.py": HANDLER,
        "returns/defs.yaml": drain_yaml("asset: {key: returns}\nprocess: .handler:process"),
        "returns/handler.py": HANDLER,
        "gates/defs.yaml": gates_yaml(gates),
    }
    for name in ("orders_here", "returns_here", "quiet_here"):
        with resource.get_queue(name) as queue:
            queue.publish({"n": 1})
    with project(files) as defs:
        (request,) = requests(defs, "shop_gates", instance)
    assert request.asset_selection == [dg.AssetKey("returns")]
    assert (request.run_key, request.tags["team"]) == ("returns_here:0:0", "shop")


def test_the_examples_of_the_documentation_load_and_drain(
    redis_url: str,
    queue: Any,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "queue/defs.yaml": snippet("dagster-component-resource").replace("name: orders", f"name: {redis_url}"),
        "orders_queue/defs.yaml": snippet("dagster-component-source-asset"),
        "published/defs.yaml": snippet("dagster-component-publish"),
        "published/handler.py": HANDLER,
        "orders/defs.yaml": snippet("dagster-component-drain"),
        "orders/handler.py": HANDLER,
        "gate/defs.yaml": snippet("dagster-component-sensor"),
        "gates/defs.yaml": snippet("dagster-component-gates"),
        "drained/defs.yaml": snippet("dagster-component-batch-sensor"),
    }
    queue.publish_many({"n": n} for n in range(998))
    with project(files) as defs:
        assert materialize(defs, instance, "shop/published_orders").success
        for sensor in ("orders_gate", "shop_gates"):
            assert [request.run_key for request in requests(defs, sensor, instance)] == [f"{redis_url}:0:0"]
        assert requests(defs, "orders_drained", instance) == []
        assert materialize(defs, instance, "shop/orders").success
        (complete,) = requests(defs, "orders_drained", instance)
        assert complete.tags["sluicegate/batch_total"] == "2", "one order is a duplicate"
    assert queue.depth().ready == 0


@contextmanager
def scaffolded(*requests: tuple[type, str, dict[str, Any] | None], form: Any = "yaml") -> Iterator[dg.Definitions]:
    """Yield the definitions of a project made by scaffolders only."""
    with create_defs_folder_sandbox() as sandbox:
        for component, folder, params in requests:
            sandbox.scaffold_component(component, folder, params, form)
        with sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            yield defs


@pytest.mark.parametrize("form", ["yaml", "python"])
def test_what_the_scaffolders_write_drains_a_queue_as_it_is(
    form: str,
    redis_url: str,
    queue: Any,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with scaffolded(
        (RedisQueueResourceComponent, "queue", {"queue_name": redis_url}),
        (QueuePublishAssetComponent, "published", None),
        (QueueSourceAssetComponent, "orders_queue", None),
        (QueueDrainAssetComponent, "new-orders", None),
        (QueueDepthSensorComponent, "orders_gate", {"min_ready": 3, "target": "key:new_orders"}),
        (QueueGatesSensorComponent, "gates", {"min_ready": 3, "target": "key:new_orders"}),
        (QueueBatchSensorComponent, "drained", {"target": "key:new_orders", "asset": "published"}),
        form=form,
    ) as defs:
        assert materialize(defs, instance, "published").success
        for sensor in ("orders_gate", "gates"):
            (request,) = requests(defs, sensor, instance)
            assert request.tags["sluicegate/ready"] == "10"
        assert requests(defs, "drained", instance) == [], "the scaffolded asset publishes no batch"
        assert materialize(defs, instance, "new_orders").success
    (file,) = (tmp_path / "data/new_orders").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"number": n} for n in range(10)]
    assert queue.depth().ready == 0


@pytest.mark.parametrize("form", ["yaml", "python"])
def test_what_the_scaffolders_write_drains_a_group_of_a_stream(
    form: str,
    redis_url: str,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with resource.get_group("audit", stream_name=redis_url) as audit, resource.get_stream(redis_url) as stream:
        audit.create("beginning")
        stream.group("billing").create("beginning")
    named = {"stream_name": redis_url, "group": "audit"}
    with scaffolded(
        (RedisQueueResourceComponent, "queue", {"stream_name": redis_url, "group": "billing"}),
        (QueuePublishAssetComponent, "published", None),
        (QueueSourceAssetComponent, "events", named),
        (QueueDrainAssetComponent, "billed", None),
        (QueueDrainAssetComponent, "audited", named),
        (QueueDepthSensorComponent, "billing_gate", {"min_ready": 3, "target": "key:billed"}),
        (QueueGatesSensorComponent, "gates", {"min_ready": 3, "target": "key:audited", **named}),
        form=form,
    ) as defs:
        assert materialize(defs, instance, "published").success
        keys = [request.run_key for sensor in ("billing_gate", "gates") for request in requests(defs, sensor, instance)]
        assert keys == [f"stream:{redis_url}:billing:0:0", f"stream:{redis_url}:audit:0:0"]
        assert materialize(defs, instance, "billed", "audited").success
    for name in ("billed", "audited"):
        (file,) = (tmp_path / "data" / name).iterdir()
        assert len(file.read_text().splitlines()) == 10
    with resource.get_group("audit", stream_name=redis_url) as audit:
        assert (audit.depth().ready, audit.stats().acked) == (0, 10)


def test_a_scaffolded_resource_requires_the_variable_that_it_names(tmp_path: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(RedisQueueResourceComponent, "orders", {"url_env_var": "ORDERS_URL"})
        written = yaml.safe_load((folder / "defs.yaml").read_text())
    assert written["requirements"] == {"env": ["ORDERS_URL"]}
    assert written["attributes"] == {"resource_key": "queue", "url_env_var": "ORDERS_URL", "queue_name": "orders"}


def test_a_scaffolder_leaves_a_handler_that_is_there() -> None:
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "orders").mkdir()
        handler = sandbox.defs_folder_path / "orders" / "handler.py"
        handler.write_text("# mine\n")
        sandbox.scaffold_component(QueueDrainAssetComponent, "orders")
        assert handler.read_text() == "# mine\n"


def test_a_scaffolded_drain_of_a_named_function_has_no_handler_file() -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(QueueDrainAssetComponent, "orders", {"function": "shop.handlers:write"})
        assert [path.name for path in folder.iterdir()] == ["defs.yaml"]
        assert yaml.safe_load((folder / "defs.yaml").read_text())["attributes"]["process"] == "shop.handlers:write"
