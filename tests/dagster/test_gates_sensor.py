"""One sensor for many gates: each decides by itself, and what fails for one queue does not stop the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import pytest
import redis

from dagster_sluicegate import QueueGate, RedisQueueResource, build_queue_gates_sensor
from dagster_sluicegate.depths import Located, read_places
from sluicegate import Depth, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.place import Place
from tests.dagster.helpers import submit
from tests.support.servers import free_port, silent_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster

NAMES = ("gates orders", "gates returns", "gates payments")


@dg.asset
def orders() -> None: ...


@dg.asset
def returns() -> None: ...


@dg.op
def nothing() -> None: ...


@dg.job
def settle_payments() -> None:
    nothing()


ASSETS = dg.Definitions(assets=[orders, returns])


@pytest.fixture
def shop(url: str, client: redis.Redis) -> Iterator[dict[str, RedisQueueResource]]:
    """Yield resources of three empty queues on one server, and of one on a server that is down."""
    yield {
        **{name.split()[1]: RedisQueueResource(url=url, queue_name=name) for name in NAMES},
        "down": RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="gates down"),
    }
    for key in client.scan_iter("sluicegate:{gates *"):
        client.delete(key)


def fill(resource: RedisQueueResource, count: int) -> None:
    with resource.get_queue() as queue:
        queue.publish_many({"n": number} for number in range(count))


def sensor_of(*gates: QueueGate, **options: Any) -> dg.SensorDefinition:
    return build_queue_gates_sensor(name="gates", queues=gates, **options)


def tick(
    sensor: dg.SensorDefinition,
    instance: dg.DagsterInstance,
    resources: dict[str, RedisQueueResource],
    cursor: str | None = None,
) -> Any:
    needed = {key: resources[key] for key in sensor.required_resource_keys}
    return sensor.evaluate_tick(
        dg.build_sensor_context(
            instance=instance, resources=needed, cursor=cursor, repository_def=ASSETS.get_repository_def()
        )
    )


def keys_of(requests: Sequence[dg.RunRequest] | None) -> list[str | None]:
    return [request.run_key for request in requests or ()]


# ---------------------------------------------------------------------------------------------------- what it requests


def test_each_queue_whose_condition_is_met_gets_a_run_of_its_own_assets(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="orders", min_ready=3),
        QueueGate(target="returns", resource_key="returns", min_ready=1),
        QueueGate(target=dg.AssetSelection.all(), resource_key="payments", min_ready=5),
    )
    fill(shop["orders"], 3)
    fill(shop["payments"], 9)
    data = tick(sensor, instance, shop)
    assert [(request.run_key, request.asset_selection) for request in data.run_requests] == [
        ("gates orders:0:0", [orders.key]),
        ("gates payments:0:0", [orders.key, returns.key]),
    ]
    assert {request.job_name for request in data.run_requests} == {"__ASSET_JOB"}
    assert data.run_requests[0].tags["sluicegate/ready"] == "3"
    assert json.loads(data.cursor) == {
        "version": 1,
        "queues": {
            "gates orders": "3 ready, 0 runs in flight, 1 run requested",
            "gates payments": "9 ready, 0 runs in flight, 1 run requested",
        },
        "idle": 1,
    }
    for request in data.run_requests:
        submit(instance, request)
    fill(shop["returns"], 1)
    data = tick(sensor, instance, shop, data.cursor)
    assert keys_of(data.run_requests) == ["gates returns:0:0"]
    submit(instance, data.run_requests[0])
    data = tick(sensor, instance, shop, data.cursor)
    assert data.skip_message.startswith("9 messages ready in 'gates payments'")
    assert "1 of at most 1 runs in flight" in data.skip_message


def test_jobs_are_requested_by_name(shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance) -> None:
    all_orders = dg.define_asset_job("all_orders", selection="orders")
    sensor = sensor_of(
        QueueGate(target=settle_payments, resource_key="payments", min_ready=1),
        QueueGate(
            target=all_orders, resource_key="orders", min_ready=1, run_config_fn=lambda context, depth: {"ops": {}}
        ),
        QueueGate(target=settle_payments, resource_key="returns", min_ready=1),
    )
    for key in ("payments", "orders", "returns"):
        fill(shop[key], 1)
    requests = tick(sensor, instance, shop).run_requests
    assert [request.job_name for request in requests] == ["settle_payments", "all_orders", "settle_payments"]
    assert requests[1].run_config == {"ops": {}}


def test_one_resource_may_serve_several_queues(
    shop: dict[str, RedisQueueResource], url: str, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(*(QueueGate(target=orders, queue_name=name, min_ready=2) for name in NAMES))
    fill(shop["returns"], 2)
    data = tick(sensor, instance, {"queue": RedisQueueResource(url=url)})
    assert keys_of(data.run_requests) == ["gates returns:0:0"]


def test_queues_of_one_name_on_two_servers_have_run_keys_of_their_own(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, tmp_path: object
) -> None:
    here = RedisQueueResource(url=url, queue_name="gates orders")
    there = RedisQueueResource(url=f"embedded://{tmp_path}", queue_name="gates orders")
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="here", min_ready=1),
        QueueGate(target=orders, resource_key="there", min_ready=1),
    )
    with there.get_queue() as queue:
        queue.publish({"n": 1})
        fill(here, 1)
        data = tick(sensor, instance, {"here": here, "there": there})
    assert keys_of(data.run_requests) == ["gates orders@here:0:0", "gates orders@there:0:0"]
    client.delete(*client.scan_iter("sluicegate:{gates *"))


# ---------------------------------------------------------------------------------------------------- what fails


def test_a_server_that_is_down_stops_its_own_queues_only(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="down", min_ready=1),
        QueueGate(target=orders, resource_key="orders", min_ready=3),
    )
    data = tick(sensor, instance, shop)
    assert "0 messages ready in 'gates orders'" in data.skip_message
    assert "Not decided: gates down: RedisUnavailableError: " in data.skip_message
    fill(shop["orders"], 3)
    data = tick(sensor, instance, shop)
    assert keys_of(data.run_requests) == ["gates orders:0:0"]
    ((error, queues),) = json.loads(data.cursor)["failed"].items()
    assert queues == ["gates down"]
    assert error.startswith("RedisUnavailableError: ")
    assert f"gates down: {error}" in capsys.readouterr().err


def test_the_tick_fails_when_no_queue_could_be_read(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(QueueGate(target=orders, resource_key="down", min_ready=1))
    with pytest.raises(RedisMessageQueueError, match=r"sensor 'gates' could read no queue; gates down: Redis.*127\.0"):
        tick(sensor, instance, shop)


def test_a_queue_whose_keys_are_of_another_type_stops_no_other(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance, client: redis.Redis
) -> None:
    sensor = sensor_of(*(QueueGate(target=orders, resource_key=key, min_ready=3) for key in ("orders", "returns")))
    fill(shop["orders"], 3)
    with shop["returns"].get_queue() as queue:
        client.set(queue.key.pending, "no list")
    data = tick(sensor, instance, shop)
    assert keys_of(data.run_requests) == ["gates orders:0:0"]
    assert [error.split(":")[0] for error in json.loads(data.cursor)["failed"]] == ["WrongKeyTypeError"]


def test_a_run_config_fn_that_raises_stops_no_other_queue(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(context: dg.SensorEvaluationContext, depth: Depth) -> dict[str, Any]:
        raise LookupError("no config today")

    sensor = sensor_of(
        QueueGate(target=orders, resource_key="orders", min_ready=1, run_config_fn=refuse),
        QueueGate(target=orders, resource_key="returns", min_ready=1),
    )
    fill(shop["orders"], 1)
    fill(shop["returns"], 1)
    data = tick(sensor, instance, shop)
    assert keys_of(data.run_requests) == ["gates returns:0:0"]
    assert json.loads(data.cursor)["failed"] == {"LookupError: no config today": ["gates orders"]}
    assert "Queue 'gates orders': its runs cannot be requested." in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- time


def test_a_mute_server_costs_a_tick_its_time_for_reading_only_and_is_read_first_by_the_next(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="mute", min_ready=1),
        QueueGate(target=orders, resource_key="orders", min_ready=1),
        read_seconds=0.3,
    )
    fill(shop["orders"], 1)
    with silent_port() as port:
        mute = RedisQueueResource(url=f"redis://127.0.0.1:{port}/0?socket_timeout=2", queue_name="gates mute")
        data = tick(sensor, instance, shop | {"mute": mute})
    assert keys_of(data.run_requests) == ["gates orders:0:0"]
    assert json.loads(data.cursor)["unread"] == ["gates mute"]
    assert "gates mute: not read in time, so the next tick reads them first" in capsys.readouterr().err


def test_servers_that_were_not_read_come_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_sluicegate.depths._SERVERS_AT_A_TIME", 1)
    with silent_port() as port:
        places = {
            "mute": Located(f"redis://127.0.0.1:{port}/0?socket_timeout=0.5", Place("gates mute")),
            "live": Located(url, Place("gates live")),
        }
        for _ in range(8):
            assert list(read_places(places, first=["live"], seconds=0.2)) == ["live"]


def test_the_order_of_the_others_changes_so_that_slow_servers_do_not_keep_the_same_ones_unread(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_sluicegate.depths._SERVERS_AT_A_TIME", 1)
    with silent_port() as port:
        places = {
            "mute": Located(f"redis://127.0.0.1:{port}/0?socket_timeout=0.2", Place("gates mute")),
            "live": Located(url, Place("gates live")),
        }
        assert any("live" in read_places(places, seconds=0.1) for _ in range(30))


def test_a_hundred_queues_of_a_server_cost_one_connection_and_few_questions_to_the_run_storage(
    url: str, client: redis.Redis, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"gates {number}" for number in range(100)]
    with RedisMessageQueue(names[0], url=url) as queue:
        for name in names:
            RedisMessageQueue(name, gateway=queue.session.runner.gateway).publish({"n": 1})
    sensor = sensor_of(*(QueueGate(target=orders, queue_name=name, min_ready=1) for name in names))
    asked = []
    ask = instance.get_run_records
    monkeypatch.setattr(
        instance, "get_run_records", lambda *args, **options: asked.append(args) or ask(*args, **options)
    )
    before = client.info("stats")["total_connections_received"]
    data = tick(sensor, instance, {"queue": RedisQueueResource(url=url)})
    assert client.info("stats")["total_connections_received"] - before <= 2  # with one that looks for the server
    assert len(data.run_requests) == 100
    assert len(asked) <= 5
    client.delete(*client.scan_iter("sluicegate:{gates *"))


def test_many_runs_of_one_queue_do_not_hide_those_of_another(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_sluicegate.sensors.runs._MOST", 4)
    sensor = sensor_of(*(QueueGate(target=orders, resource_key=key, min_ready=1) for key in ("orders", "returns")))
    fill(shop["orders"], 1)
    fill(shop["returns"], 1)
    first, second = tick(sensor, instance, shop).run_requests
    submit(instance, first)
    with shop["orders"].get_queue() as queue, queue.claim(1):
        pass
    fill(shop["orders"], 1)
    for _ in range(6):
        submit(instance, second)
    data = tick(sensor, instance, shop)
    assert keys_of(data.run_requests) == []
    assert data.skip_message.count("of at most 1 runs in flight") == 2


# ---------------------------------------------------------------------------------------------------- definition


def test_a_test_may_call_it_directly(shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance) -> None:
    sensor = sensor_of(
        QueueGate(target=settle_payments, resource_key="orders", min_ready=1),
        QueueGate(target=settle_payments, resource_key="returns", min_ready=1),
    )
    fill(shop["orders"], 1)
    result = sensor(dg.build_sensor_context(instance=instance), orders=shop["orders"], returns=shop["returns"])
    assert isinstance(result, dg.SensorResult)
    assert keys_of(result.run_requests) == ["gates orders:0:0"]


def test_a_test_without_definitions_says_what_is_missing(
    shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(QueueGate(target=orders, resource_key="orders", min_ready=1))
    fill(shop["orders"], 1)
    with pytest.raises(ConfigurationError, match="build_sensor_context\\(definitions=defs"):
        sensor(dg.build_sensor_context(instance=instance), orders=shop["orders"])


def test_its_description_lists_the_gates_as_plain_text() -> None:
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="orders", min_ready=3),
        QueueGate(target=orders, queue_name="returns", max_age_seconds=60),
    )
    assert sensor.description == (
        "Requests a run for the queue of the resource 'orders' when 3 messages are ready; "
        "the queue 'returns' when the oldest has been ready for 60 s. Only reads."
    )
    many = sensor_of(*(QueueGate(target=orders, queue_name=f"q{number}", min_ready=1) for number in range(30)))
    assert (many.description or "").endswith("the queue 'q19' when 1 message is ready; and for 10 more. Only reads.")


def test_the_sensors_of_the_documentation_load() -> None:
    names: dict[str, object] = {"__name__": "snippet"}
    exec(compile(snippet("dagster-gates"), "dagster-gates", "exec", dont_inherit=True), names)  # noqa: S102
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert sorted(sensor.name for sensor in defs.sensors or ()) == ["dead_orders_sensor", "orders_gate", "other_gates"]


def test_two_gates_for_one_queue_are_refused(shop: dict[str, RedisQueueResource], instance: dg.DagsterInstance) -> None:
    sensor = sensor_of(
        QueueGate(target=orders, resource_key="orders", min_ready=3),
        QueueGate(target=orders, resource_key="returns", queue_name="gates orders", min_ready=9),
    )
    with pytest.raises(ConfigurationError, match="sensor 'gates' has two gates for the queue 'gates orders'; remove"):
        tick(sensor, instance, shop)


@pytest.mark.parametrize(
    ("gates", "options", "complaint"),
    [
        ([], {}, "queues is empty; give at least one QueueGate"),
        ([QueueGate(target=orders)], {}, "the gate of the queue of the resource 'queue': give min_ready"),
        ([QueueGate(target=orders, queue_name="x", min_ready=0)], {}, "the gate of the queue 'x': min_ready .* not 0"),
        ([QueueGate(target=orders, queue_name=" ", min_ready=1)], {}, "queue name is blank"),
        ([QueueGate(target=orders, resource_key="a-b", min_ready=1)], {}, "must be a Python identifier, not 'a-b'"),
        (
            [QueueGate(target=orders, min_ready=1), QueueGate(target=settle_payments, queue_name="x", min_ready=1)],
            {},
            "some gates target jobs and some target assets.*dg.define_asset_job, or build two sensors",
        ),
        ([QueueGate(target=orders, min_ready=1)], {"read_seconds": 0}, "read_seconds must be a number above 0"),
        ([QueueGate(target=orders, min_ready=1)], {"count_runs_of": "x"}, "count_runs_of"),
        ([QueueGate(target=orders, min_ready=1)], {"run_tags": {"sluicegate/x": "1"}}, "use other names"),
        ([QueueGate(target=orders, min_ready=1)], {"failure_delay_seconds": -1}, "failure_delay_seconds"),
    ],
)
def test_what_cannot_work_is_refused(gates: list[QueueGate], options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"sensor 'gates': .*{complaint}"):
        sensor_of(*gates, **options)
