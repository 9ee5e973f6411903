"""What Airflow sees of the provider."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from importlib import resources
from importlib.metadata import distribution, entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import airflow_provider_sluicegate
from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.compat import AirflowFailException, AirflowOptionalProviderFeatureException
from airflow_provider_sluicegate.connection import EXTRA_KEYS
from airflow_provider_sluicegate.get_provider_info import get_provider_info
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier
from airflow_provider_sluicegate.operators.administration import RedisQueuePurgeOperator, RedisQueueRedriveOperator
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator, RedisQueueSettleLeaseOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from sluicegate import LeaseHandle, RedisMessageQueue
from tests.airflow.deployment import Deployment
from tests.airflow.instance import Instance

pytestmark = pytest.mark.airflow


def import_string(name: str) -> Any:
    """Return what a dotted name means; Airflow's own function of this name moves between versions."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def names_in(module: str) -> list[str] | str:
    """Return what a module exports, or what its error says that it needs and is missing here."""
    try:
        names: list[str] = import_string(f"{module}.__all__")
    except AirflowOptionalProviderFeatureException as error:
        return re.split("[:,]", str(error))[0]
    return names


HAS_SPARK_PROVIDER = any(
    entry_point.value.startswith("airflow.providers.apache.spark.")
    for entry_point in entry_points(group="apache_airflow_provider")
)
HAS_SHARED_STREAMS = compat.has_shared_streams()
INFO = get_provider_info()
FOLDER = Path(airflow_provider_sluicegate.__file__).parent
PACKAGE = airflow_provider_sluicegate.__name__
HEAVY = {"fastapi", "openlineage", "pandas", "pyarrow", "pyspark", "redis"}
DISTRIBUTION = distribution("sluicegate")


def airflow_schema(name: str) -> Any:
    return json.loads((resources.files("airflow") / name).read_text())


def test_the_metadata_is_valid_by_airflows_own_schema() -> None:
    schema = airflow_schema("provider_info.schema.json")
    jsonschema.validate(INFO, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**INFO, "connection-types": [{"connection-type": "sluicegate"}]}, schema)
    # Airflow knows `cli` from 3.2 on, and ignores what it does not know.
    assert set(INFO) - {"versions", "cli"} <= set(schema["properties"])


def test_the_package_is_the_distribution() -> None:
    # Airflow refuses to load any provider when this name is wrong.
    assert INFO["package-name"] == DISTRIBUTION.metadata["Name"]
    assert INFO["versions"] == [DISTRIBUTION.version] == [airflow_provider_sluicegate.__version__]
    (entry_point,) = DISTRIBUTION.entry_points.select(group="apache_airflow_provider")
    assert entry_point.load() is get_provider_info


def test_every_name_in_the_metadata_can_be_imported() -> None:
    kinds = ("hooks", "operators", "sensors", "triggers")
    modules = [name for kind in kinds for entry in INFO[kind] for name in entry["python-modules"]]
    classes = [import_string(entry["hook-class-name"]) for entry in INFO["connection-types"]]

    assert [names_in(module) for module in modules] == [
        ["RedisQueueHook"],
        ["RedisQueuePurgeOperator", "RedisQueueRedriveOperator"],
        ["RedisQueueConsumeOperator"],
        ["RedisQueueDrainOperator"],
        ["RedisJobEnqueueOperator"],
        ["RedisQueueClaimOperator", "RedisQueueKeepLeaseOperator", "RedisQueueSettleLeaseOperator"],
        ["RedisQueuePublishOperator"],
        ["SparkRedisQueueDrainOperator"],
        ["SparkSubmitRedisQueueDrainOperator"]
        if HAS_SPARK_PROVIDER
        else "SparkSubmitRedisQueueDrainOperator needs Airflow's Spark provider",
        ["RedisQueueBatchSensor"],
        ["RedisJobSensor"],
        ["RedisQueueSensor"],
        ["RedisQueueBatchTrigger"],
        ["RedisQueueDeliveryTrigger"] if HAS_SHARED_STREAMS else "RedisQueueDeliveryTrigger needs Airflow 3.3",
        ["RedisQueueEventTrigger"],
        ["RedisJobTrigger"],
        ["RedisQueueLeaseTrigger"],
        ["RedisQueueTrigger"],
        ["RedisQueueRoomTrigger"],
    ]
    assert [import_string(name).scheme for name in INFO["queues"]] == ["redis+sluicegate"]
    assert classes == [RedisQueueHook]
    assert [group.name for name in INFO["cli"] for group in import_string(name)()] == ["sluicegate"]
    assert [import_string(name) for name in INFO["notifications"]] == [RedisQueueNotifier]
    (asset,) = INFO["asset-uris"]
    assert asset["schemes"] == ["sluicegate"]
    assert {name: import_string(path).__name__ for name, path in asset.items() if name != "schemes"} == {
        "handler": "sanitize_uri",
        "factory": "create_asset",
        "to_openlineage_converter": "convert_asset_to_openlineage",
    }


def test_metadata_names_every_module_that_holds_one() -> None:
    for kind in ("hooks", "operators", "sensors", "triggers"):
        found = {f"{PACKAGE}.{kind}.{path.stem}" for path in (FOLDER / kind).glob("[!_]*.py")}
        assert found == {module for entry in INFO[kind] for module in entry["python-modules"]}


def test_airflow_reads_the_metadata_without_loading_a_library() -> None:
    code = f"""
import sys
from {PACKAGE}.get_provider_info import get_provider_info
get_provider_info()
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert PACKAGE in loaded
    assert loaded.isdisjoint({*HEAVY, "airflow", "sluicegate"})


def test_reading_a_dag_file_loads_airflow_only() -> None:
    modules = [module.name for module in pkgutil.walk_packages([str(FOLDER)], f"{PACKAGE}.")]
    modules.remove(f"{PACKAGE}.operators.spark_submit")  # its parent is of the Spark provider, which loads OpenLineage
    for module in ("access", "application"):  # what the API server loads at the first request
        modules.remove(f"{PACKAGE}.plugins.{module}")
    if not HAS_SHARED_STREAMS:
        modules.remove(f"{PACKAGE}.triggers.delivery")
    code = f"""
import importlib, json, sys
import airflow.exceptions, airflow.sdk.bases.decorator, airflow.triggers.base  # what these load is Airflow's choice
loaded = {{}}
for module in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(module)
    loaded[module] = sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} & {HEAVY})
print(json.dumps(loaded))
"""
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code, *modules], text=True).splitlines()[-1])
    assert {f"{PACKAGE}.operators.drain", f"{PACKAGE}.sensors.redis_queue"} < set(loaded)
    assert {module: names for module, names in loaded.items() if names} == {}


def test_the_form_of_a_connection_is_what_the_hook_reads() -> None:
    (kind,) = INFO["connection-types"]
    behaviour = {name.replace("-", "_"): value for name, value in kind["ui-field-behaviour"].items()}
    jsonschema.validate(behaviour, airflow_schema("customized_form_field_behaviours.schema.json"))
    assert kind["connection-type"] == RedisQueueHook.conn_type
    assert kind["hook-name"] == RedisQueueHook.hook_name
    for field in kind["conn-fields"].values():
        jsonschema.Draft7Validator.check_schema(field["schema"])
        # An untouched form stores null, which must never be in the way of another field.
        jsonschema.validate(None, field["schema"])
    assert set(kind["conn-fields"]) == set(EXTRA_KEYS) - {"scheme", "password_env"}


@pytest.mark.usefixtures("airflow_deployment")
def test_airflow_lists_the_provider_and_its_connection_type(capsys: pytest.CaptureFixture[str]) -> None:
    from airflow.cli.cli_parser import get_parser
    from airflow.providers_manager import ProvidersManager

    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    except ImportError:  # Airflow 3.1
        ProvidersManagerTaskRuntime = ProvidersManager  # type: ignore[misc, assignment]

    for command, expected in (("list", "sluicegate"), ("hooks", "RedisQueueHook")):
        arguments = get_parser().parse_args(["providers", command, "--output", "json"])
        arguments.func(arguments)
        assert expected in capsys.readouterr().out

    manager = ProvidersManager()
    assert manager.providers["sluicegate"].version == DISTRIBUTION.version
    hook = ProvidersManagerTaskRuntime().hooks["sluicegate"]
    assert hook is not None
    assert (hook.hook_name, hook.connection_id_attribute_name) == ("Sluicegate", "redis_conn_id")


@pytest.mark.usefixtures("airflow_deployment")
def test_airflows_form_has_the_fields_of_the_metadata_without_a_warning() -> None:
    code = """
import json, warnings
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    forms = [form for form in HookMetaService.hook_meta_data() if form.connection_type == "sluicegate"]
warned = [str(one.message) for one in caught if "sluicegate" in str(one.message)]
print(json.dumps({"forms": [form.model_dump(mode="json") for form in forms], "warned": warned}))
"""
    # In a process of its own, because Airflow puts mocks in the place of WTForms.
    shown = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1])
    (form,) = shown["forms"]

    assert shown["warned"] == []
    standard = form["standard_fields"]
    assert standard["url_schema"]["hidden"] is True
    assert standard["login"] == {"hidden": False, "title": "Username", "placeholder": "empty for the default user"}
    assert_fields_of_the_metadata(form["extra_fields"])


def test_the_form_of_a_connection_for_airflow_3_1_is_made_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the API server puts in the place of WTForms.
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService as Played

    kinds = {f"{kind}Field": getattr(Played, f"Mock{kind}Field") for kind in ("Boolean", "Integer", "String")}
    monkeypatch.setitem(sys.modules, "wtforms", SimpleNamespace(**kinds))
    monkeypatch.setitem(sys.modules, "wtforms.validators", SimpleNamespace(Optional=Played.MockOptional))

    fields = RedisQueueHook.get_connection_form_widgets()
    behaviour = RedisQueueHook.get_ui_field_behaviour()

    assert_fields_of_the_metadata({name: field.param.dump() for name, field in fields.items()})
    jsonschema.validate(behaviour, airflow_schema("customized_form_field_behaviours.schema.json"))
    assert (behaviour["hidden_fields"], behaviour["relabeling"]) == (["schema"], {"login": "Username"})


def assert_fields_of_the_metadata(shown: dict[str, Any]) -> None:
    """Check the fields of a form, as Airflow gives them to its pages."""
    (kind,) = INFO["connection-types"]
    assert set(shown) == set(kind["conn-fields"])
    for name, field in kind["conn-fields"].items():
        found = shown[name]
        described = (found["schema"]["title"], found["description"], found["schema"]["type"], found["value"])
        assert described == (field["label"], field["description"], field["schema"]["type"], None)


@pytest.fixture
def operators() -> list[Any]:
    return [
        RedisQueuePurgeOperator(task_id="purge", queue_name="orders", state="dead"),
        RedisQueueRedriveOperator(task_id="redrive", queue_name="orders"),
        RedisQueueConsumeOperator(task_id="consume", queue_name="orders"),
        RedisQueueDrainOperator(task_id="drain", queue_name="orders", process=print),
        RedisQueueClaimOperator(task_id="claim", queue_name="orders"),
        RedisQueueSettleLeaseOperator(task_id="settle", lease={}),
        RedisQueuePublishOperator(task_id="publish", queue_name="orders", messages=[]),
        RedisQueueSensor(task_id="gate", queue_name="orders"),
    ]


def test_template_fields_are_attributes_and_leave_airflows_own_alone(operators: list[Any]) -> None:
    for operator in operators:
        for field in operator.template_fields:
            assert hasattr(operator, field)
        # A lease's handle names its queue.
        place = "lease" if isinstance(operator, RedisQueueSettleLeaseOperator) else "queue_name"
        assert {place, "redis_conn_id"} <= set(operator.template_fields)
        # Airflow's name for the queue of the executor: a task whose `queue` is ours would never be run by Celery.
        assert operator.queue == "default"


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_delivery_cuont": 3}, "'max_delivery_cuont'; did you mean max_delivery_count"),
        ({"name": "orders"}, "queue_options holds 'name'; give the queue's name as queue_name"),
        ("max_delivery_count=3", "queue_options must be a dict of options, such as .* not a str"),
    ],
)
def test_an_option_of_the_queue_that_cannot_work_fails_every_task_at_once(
    operators: list[Any], instance: Instance, options: object, says: str
) -> None:
    for operator in operators:
        operator.queue_options = options
        if isinstance(operator, RedisQueueSettleLeaseOperator):
            operator.lease = LeaseHandle("orders", "dag/claim/run/-1", "nonce:1", 60).to_dict()
            operator.work_task_ids = ["work"]
        with pytest.raises(AirflowFailException, match=says):
            operator.execute({"ti": instance})


def test_a_deduplication_template_is_not_taken_for_one_of_jinja() -> None:
    operator = RedisQueuePublishOperator(
        task_id="publish",
        queue_name="orders-{{ params.tenant }}",
        messages=[{"note": "{{ params.tenant }}"}],
        path="/data/{{ params.tenant }}.csv",
        deduplication_key="{tenant}:{order_id}:{{ params.tenant }}",
        batch_id="orders/{{ params.tenant }}",
        headers={"tenant": "{{ params.tenant }}"},
        delay_seconds="{{ params.delay }}",
        due_at="{{ params.due }}",
        redis_conn_id="{{ params.tenant }}_redis",
    )

    operator.render_template_fields({"params": {"tenant": "acme", "delay": 5, "due": "2026-12-01"}})  # type: ignore[typeddict-item]

    assert {field: getattr(operator, field) for field in operator.template_fields} == {
        "queue_name": "orders-acme",
        "stream": None,
        "messages": operator.messages,
        "path": "/data/acme.csv",
        "deduplication_key": "{tenant}:{order_id}:acme",
        "batch_id": "orders/acme",
        "headers": {"tenant": "acme"},
        "delay_seconds": "5",
        "due_at": "2026-12-01",
        "redis_conn_id": "acme_redis",
    }
    # They are data; one that holds braces is not a template.
    assert operator.messages.value == [{"note": "{{ params.tenant }}"}]


@pytest.mark.parametrize("key", [["tenant", "order_id"], None])
def test_other_deduplication_keys_survive_rendering(key: Any) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", queue_name="orders", messages=[], deduplication_key=key)

    operator.render_template_fields({})

    assert operator.deduplication_key == key


def test_a_key_function_is_not_called_by_rendering_and_is_shown_by_its_name(queue: RedisMessageQueue) -> None:
    operator = RedisQueuePublishOperator(
        task_id="publish", queue_name=queue.name, messages=[{"id": "a"}, {"id": "a"}], deduplication_key=key_of
    )

    operator.render_template_fields({})

    assert repr(operator.deduplication_key) == "key_of"
    report = operator.execute({})
    assert (report["published"], report["duplicates"]) == (1, 1)


def test_of_messages_only_their_number_is_shown() -> None:
    for messages, shown in [
        ([{"note": "CANARY"}] * 3, "list of 3"),
        (key_of, "key_of"),
        (iter(["CANARY"]), "iterator"),
        ("{{ CANARY }}", "str of 12"),
    ]:
        operator = RedisQueuePublishOperator(task_id="publish", queue_name="orders", messages=messages)
        operator.render_template_fields({})
        assert repr(operator.messages) == shown


def key_of(order: dict[str, str]) -> str:
    return order["id"]


def test_docstrings_state_what_is_delivered() -> None:
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for module in (name for entry in INFO[kind] for name in entry["python-modules"]):
            exported = names_in(module)
            for name in exported if isinstance(exported, list) else ():
                assert "**Delivery semantics.**" in import_string(f"{module}.{name}").__doc__, name


def test_dags_are_read_with_redis_down_and_no_connection(airflow_deployment: Deployment) -> None:
    with airflow_deployment.dags([Path(__file__).parent / "dags" / "gate.py"]) as dags:
        upstream = {task.task_id: task.upstream_task_ids for task in dags["gate"].tasks}
    assert upstream == {
        "make": set(),
        "publish_file": set(),
        "publish_made": {"make"},
        "publish_each": {"make"},
        "gate": {"publish_file", "publish_made", "publish_each"},
        "drain": {"gate"},
    }
