"""The gate: when it opens, when it stays shut, and that looking changes nothing. Real Redis, no scheduler."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from airflow.exceptions import AirflowRescheduleException, TaskDeferred
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, timezone
from airflow.sdk.module_loading import import_string

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSensorTimeout,
    AirflowSkipException,
    renders_start_trigger,
)
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from airflow_provider_sluicegate.triggers._poller import DepthPoller
from sluicegate import LeaseHandle, RedisMessageQueue
from sluicegate.embedded import connect as connect_embedded
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.support.servers import free_port
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.airflow

DAYS = ("2013-01-01", "2013-01-02")


def sensor(queue: RedisMessageQueue | str, **arguments: Any) -> RedisQueueSensor:
    name = queue if isinstance(queue, str) else queue.name
    return RedisQueueSensor(task_id="gate", queue_name=name, poke_interval=0.01, **arguments)


def poke(queue: RedisMessageQueue | str, **arguments: Any) -> dict[str, Any] | None:
    """Poke once and return the XCom value, None when the gate stays shut."""
    answer = sensor(queue, **arguments).poke({})
    assert answer.is_done == (answer.xcom_value is not None)
    value: dict[str, Any] | None = answer.xcom_value
    return value


def oldest_age(queue: RedisMessageQueue) -> float:
    age = queue.depth().oldest_ready_age_seconds
    assert age is not None
    return age


@pytest.mark.parametrize(("messages", "opens"), [(0, False), (2, False), (3, True), (4, True)])
def test_opens_at_its_depth(queue: RedisMessageQueue, messages: int, opens: bool) -> None:
    queue.publish_many([{"id": number} for number in range(messages)])

    assert (poke(queue, min_ready=3) is not None) is opens


def test_hands_on_counts_and_what_opened_it(queue: RedisMessageQueue) -> None:
    queue.publish_many([{"id": 1, "note": "CANARY"}, {"id": 2}])
    with queue.claim(1) as lease:
        lease.release()

    found = poke(queue, min_ready=2)

    assert found is not None
    age = found.pop("oldest_ready_age_seconds")
    assert 0 <= age <= oldest_age(queue)
    assert found == {
        "queue": queue.name, "ready": 2, "pending": 1, "in_flight": 0, "delayed": 0, "dead": 0, "paused": False,
        "fired_by": "depth",
    }  # fmt: skip


def test_opens_for_dead_letters_also_of_a_paused_queue(queue: RedisMessageQueue) -> None:
    queue.publish_many([{"id": 1}, {"id": 2}, {"id": 3}])
    queue.claim(2).bury(error="why")
    assert poke(queue, min_dead=3) is None
    queue.pause()

    found = poke(queue, min_dead="2")
    assert found is not None
    assert (found["fired_by"], found["dead"], found["paused"]) == ("dead", 2, True)


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, event: str, *args: Any) -> None:
        self.lines.append(event % args)


def test_the_log_says_why_nothing_is_ready(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def logged() -> str:
        log = Lines()
        monkeypatch.setattr(RedisQueueSensor, "log", log)
        assert poke(queue, min_ready=5) is None
        (line,) = log.lines
        return line

    assert "closed: no such queue yet" in logged()
    queue.publish_many([{"id": number} for number in range(3)])
    assert "ready 3" in logged()
    lease = queue.claim(2, lease_seconds=600)
    queue.claim(1).bury(error="why")
    text = logged()
    assert "in flight 2, delayed 0, dead 1, paused False; the gate opens when 5 messages are ready" in text
    assert re.search(r"closed: 2 in flight until \d\d:\d\d:\d\d, 1 dead letter", text)
    lease.release()
    queue.pause()
    assert "closed: paused, 2 ready" in logged()


def test_opens_at_its_age_though_depth_is_not_reached(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})
    wait_until(lambda: oldest_age(queue) >= 0.2, "the message is 0.2 s old")

    found = poke(queue, min_ready=1000, max_age_seconds=0.2)

    assert found is not None
    assert (found["fired_by"], found["ready"]) == ("age", 1)
    assert found["oldest_ready_age_seconds"] >= 0.2


def test_stays_shut_while_the_oldest_is_young(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})

    assert poke(queue, max_age_seconds=3600) is None
    assert poke(queue, min_ready=2, max_age_seconds=3600) is None


def test_age_alone_does_not_open_for_an_empty_queue(queue: RedisMessageQueue) -> None:
    assert poke(queue, max_age_seconds=0.001) is None


def test_depth_is_named_when_both_are_reached(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})
    wait_until(lambda: oldest_age(queue) >= 0.01, "the message is 0.01 s old")

    found = poke(queue, min_ready=1, max_age_seconds=0.01)

    assert found is not None
    assert found["fired_by"] == "depth"


@pytest.mark.parametrize("condition", [{"min_ready": 1}, {"max_age_seconds": 0.01}])
def test_a_paused_queue_keeps_it_shut(queue: RedisMessageQueue, condition: dict[str, Any]) -> None:
    queue.publish({"id": 1})
    wait_until(lambda: oldest_age(queue) >= 0.01, "the message is 0.01 s old")
    queue.pause()
    assert poke(queue, **condition) is None
    queue.resume()
    assert poke(queue, **condition) is not None


def test_without_conditions_one_message_is_enough(queue: RedisMessageQueue) -> None:
    assert poke(queue) is None
    queue.publish({"id": 1})
    assert poke(queue) is not None


def test_an_age_alone_leaves_the_depth_out(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})

    assert poke(queue, max_age_seconds=3600) is None


def test_what_is_in_flight_does_not_open_it_and_what_a_dead_consumer_left_does(
    queue: RedisMessageQueue, embedded_url: str
) -> None:
    queue.publish_many([{"id": 1}, {"id": 2}])
    lease = queue.claim(2, lease_seconds=600, heartbeat=False)
    assert len(lease) == 2
    assert poke(queue) is None

    with connect_embedded(embedded_url) as client:  # the lease expires
        client.zadd(queue.key.leases, dict.fromkeys(client.zrange(queue.key.leases, 0, -1), 1))

    found = poke(queue, min_ready=2)
    assert found is not None
    assert (found["ready"], found["pending"]) == (2, 0)


def test_looking_changes_nothing(queue: RedisMessageQueue, embedded_url: str) -> None:
    client = connect_embedded(embedded_url)
    queue.publish_many([{"id": number} for number in range(5)])
    lease = queue.claim(2, lease_seconds=0.05, heartbeat=False)
    wait_until(lambda: queue.depth().expired == len(lease), "the lease runs out")
    pattern = queue.key.pending.replace("pending", "*")
    keys = sorted(client.scan_iter(pattern))
    assert len(keys) >= 4
    before = [client.dump(key) for key in keys]
    client.config_resetstat()

    assert poke(queue, min_ready=5) is not None
    assert poke(queue, min_ready=6, max_age_seconds=3600) is None

    statistics = client.info("commandstats")
    assert sorted(client.scan_iter(pattern)) == keys
    assert [client.dump(key) for key in keys] == before
    used = {name.removeprefix("cmdstat_") for name in statistics} - {"config|resetstat", "config"}
    assert {"ping", "zcard", "evalsha"} <= used
    assert not [name for name in sorted(used) if _writes(client, name)]
    client.close()


def _writes(client: redis.Redis, command: str) -> bool:
    (about,) = client.execute_command("COMMAND", "INFO", command.partition("|")[0]).values()
    return "write" in about["flags"]


def test_waits_in_poke_mode_until_the_depth_is_reached(queue: RedisMessageQueue) -> None:
    looked = threading.Event()

    class Watched(RedisQueueSensor):
        def poke(self, context: Any) -> Any:
            answer = super().poke(context)
            looked.set()
            return answer

    def produce() -> None:
        looked.wait(60)
        queue.publish({"id": 1})

    producer = threading.Thread(target=produce)
    producer.start()
    found = Watched(task_id="gate", queue_name=queue.name, poke_interval=0.01, timeout=100).execute({})
    producer.join()

    assert looked.is_set()
    assert found["ready"] == 1


def test_gives_up_at_its_timeout(queue: RedisMessageQueue) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(queue, timeout=0.05).execute({})


class TaskInstance:
    """The part of a task instance that Airflow's sensor asks in reschedule mode."""

    def get_first_reschedule_date(self, context: Any) -> None:
        return None


def test_reschedules_until_the_depth_is_reached(queue: RedisMessageQueue) -> None:
    gate = sensor(queue, mode="reschedule")
    context: Any = {"ti": TaskInstance()}
    for _ in range(2):
        with pytest.raises(AirflowRescheduleException):
            gate.execute(context)
    queue.publish({"id": 1})

    assert gate.execute(context)["ready"] == 1


def test_every_execution_closes_its_connections(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[RedisQueueHook] = []
    monkeypatch.setattr(RedisQueueHook, "close", lambda hook: closed.append(hook))  # noqa: PLW0108, it must bind

    with pytest.raises(AirflowSensorTimeout):
        sensor(queue, timeout=0).execute({})
    with pytest.raises(AirflowRescheduleException):
        sensor(queue, mode="reschedule").execute({"ti": TaskInstance()})  # type: ignore[typeddict-item]
    queue.publish({"id": 1})
    sensor(queue).execute({})

    assert len({id(hook) for hook in closed}) == 3


def test_redis_not_running_is_visible_and_says_where(connect: Connect) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)

    with pytest.raises(RedisUnavailableError) as away:
        sensor("orders").execute({})

    assert f"Redis at localhost:{port} cannot be reached" in str(away.value)
    assert PASSWORD not in str(away.value)


def test_options_reach_the_queue(queue: RedisMessageQueue) -> None:
    with pytest.raises(ConfigurationError, match="retry_budget_seconds must be a number of 0 or more"):
        sensor(queue, queue_options={"retry_budget_seconds": -1}).poke({})


def test_an_option_or_a_connection_that_cannot_work_fails_without_a_retry(connect: Connect) -> None:
    connect(host="localhost", extra={"frobnicate": 1})
    with pytest.raises(AirflowFailException, match="has the key 'frobnicate' in its extra"):
        sensor("orders").execute({})
    connect(host="localhost")
    with pytest.raises(AirflowFailException, match="'retry_budget'; did you mean retry_budget_seconds"):
        sensor("orders", queue_options={"retry_budget": 1}).execute({})


WRONG = [
    ({"min_ready": None}, "give min_ready, max_age_seconds or min_dead"),
    ({"min_ready": 0}, "min_ready must be None or an int of 1 or more, not 0"),
    ({"min_ready": -5, "max_age_seconds": 5}, "min_ready must be None or an int of 1 or more, not -5"),
    ({"min_ready": 1.5}, "min_ready must be a whole number or None, not 1.5"),
    ({"min_ready": True}, "min_ready must be a whole number or None, not True"),
    ({"max_age_seconds": 0}, "max_age_seconds must be None or a finite number above 0, not 0"),
    ({"max_age_seconds": float("nan")}, "max_age_seconds must be None or a finite number above 0, not nan"),
    ({"max_age_seconds": float("inf")}, "max_age_seconds must be None or a finite number above 0, not inf"),
    ({"max_age_seconds": [5]}, r"max_age_seconds must be a number or None, not \[5\]"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG)
def test_conditions_that_cannot_work_are_refused_when_the_dag_is_read(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        sensor("orders", **arguments)


@pytest.mark.parametrize(
    ("template", "rendered", "reason"),
    [
        ("min_ready", "0", "min_ready must be None or an int of 1 or more, not 0"),
        ("min_ready", "many", "min_ready must be a whole number or None, not 'many'"),
        ("min_ready", "None", "give min_ready, max_age_seconds or min_dead"),
        ("max_age_seconds", "-1", "max_age_seconds must be None or a finite number above 0, not -1"),
    ],
)
def test_conditions_from_templates_are_refused_before_the_first_look(
    template: str, rendered: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = sensor("orders", **{template: "{{ params.threshold }}"})
    monkeypatch.setattr(gate, "poke", lambda context: pytest.fail("it looked"))
    gate.render_template_fields({"params": {"threshold": rendered}})

    with pytest.raises(AirflowFailException, match=reason):
        gate.execute({})


def test_conditions_from_templates_are_numbers(queue: RedisMessageQueue) -> None:
    queue.publish({"id": 1})
    gate = sensor(queue, min_ready="{{ params.ready }}", max_age_seconds="{{ params.age }}")
    gate.render_template_fields({"params": {"ready": 2, "age": 3600.5}})
    assert gate.poke({}).is_done is False

    queue.publish({"id": 2})
    assert gate.poke({}).is_done is True


# ---------------------------------------------------------------------- several queues


@pytest.mark.parametrize(("match", "opens"), [("any", True), ("all", False)])
def test_several_queues_in_one_round_trip(queue: RedisMessageQueue, embedded_url: str, match: Any, opens: bool) -> None:
    names = [queue.name, f"{queue.name}-other", f"{queue.name}-third"]
    queue.publish("a")
    gate = RedisQueueSensor(task_id="gate", queue_name=names, match=match)
    gate.poke({})
    client = connect_embedded(embedded_url)
    client.config_resetstat()

    answer = gate.poke({})

    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    client.close()
    assert answer.is_done is opens
    if opens:
        assert answer.xcom_value["open"] == [queue.name]
        assert [one["queue"] for one in answer.xcom_value["queues"]] == names


# ---------------------------------------------------------------------- deferrable


def deferred(gate: RedisQueueSensor, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as found:
        gate.execute(context)
    return found.value


def test_a_deferrable_sensor_that_is_open_needs_no_triggerer(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish("a")

    assert sensor(queue, deferrable=True).execute({"ti": instance})["ready"] == 1  # type: ignore[typeddict-item]


def test_a_deferrable_sensor_hands_its_conditions_and_its_deadline_to_the_triggerer(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    gate = RedisQueueSensor(
        task_id="gate",
        queue_name=queue.name,
        min_ready="{{ params.ready }}",
        poke_interval=7,
        timeout=100,
        deferrable=True,
    )
    gate.render_template_fields({"params": {"ready": 3}})

    found = deferred(gate, {"ti": instance})

    assert found.trigger.serialize()[1] == {
        "queue_name": queue.name, "min_ready": "3", "max_age_seconds": None, "min_dead": None, "match": "any",
        "poll_interval_seconds": 7, "initial_delay_seconds": compat.worker_lag_seconds(),
        "redis_conn_id": "sluicegate_default",
    }  # fmt: skip
    assert 90 < found.timeout.total_seconds() <= 100
    deadline = datetime.fromisoformat(found.kwargs["deadline"])
    assert 90 < (deadline - datetime.now(UTC)).total_seconds() <= 100
    assert found.method_name == "execute_complete"


def test_a_deferrable_sensor_outlives_a_redis_that_is_away_at_its_first_look(
    connect: Connect, instance: Instance
) -> None:
    connect(host="localhost", port=free_port(), password=PASSWORD)

    deferred(sensor("orders", deferrable=True), {"ti": instance})


@pytest.mark.parametrize(("is_permanent", "failure"), [(True, AirflowFailException), (False, AirflowException)])
def test_an_error_of_the_triggerer_fails_the_task(
    queue: RedisMessageQueue, instance: Instance, is_permanent: bool, failure: type[Exception]
) -> None:
    event = {"status": "error", "error": "the text", "is_permanent": is_permanent}

    with pytest.raises(failure, match="the text") as found:
        sensor(queue, deferrable=True).execute_complete({"ti": instance}, event)  # type: ignore[typeddict-item]

    assert type(found.value) is failure


def test_the_counts_of_the_event_are_the_xcom(queue: RedisMessageQueue, instance: Instance) -> None:
    event = {"status": "open", "value": {"queue": queue.name, "ready": 7}}

    found = sensor(queue, deferrable=True).execute_complete({"ti": instance}, event)  # type: ignore[typeddict-item]

    assert found == {"queue": queue.name, "ready": 7}


def test_a_sensor_starts_from_the_triggerer_with_its_templates() -> None:
    gate = RedisQueueSensor(
        task_id="gate",
        queue_name="{{ params.queue }}",
        min_ready="{{ params.ready }}",
        start_from_trigger=True,
        timeout=50,
    )

    assert gate.start_from_trigger is renders_start_trigger()
    assert gate.deferrable is True
    if not gate.start_from_trigger:
        return  # Airflow 3.1 and 3.2 begin on a worker, and wait in the triggerer too
    arguments = gate.start_trigger_args.trigger_kwargs
    assert arguments is not None
    assert set(gate.template_fields) == {
        *("queue_name", "stream", "group", "min_ready", "max_age_seconds", "min_dead", "redis_conn_id")
    }
    assert set(gate.template_fields) <= set(arguments), "the triggerer renders what has the same name in both"
    trigger = import_string(gate.start_trigger_args.trigger_cls)(**arguments)
    assert trigger.queue_name == "{{ params.queue }}"
    assert all(hasattr(trigger, name) for name in gate.template_fields)
    assert gate.start_trigger_args.timeout == timedelta(seconds=50)
    assert RedisQueueSensor.start_trigger_args.trigger_kwargs == {}, "the class stays as it was"


def test_a_sensor_with_a_tasks_output_cannot_start_from_the_triggerer() -> None:
    with DAG("starts"):
        least = BashOperator(task_id="least", bash_command="echo 3")
        with pytest.raises(ConfigurationError, match="the output of a task is not known in the triggerer"):
            RedisQueueSensor(task_id="gate", queue_name="orders", min_ready=least.output, start_from_trigger=True)


# ---------------------------------------------------------------------- claim


def claiming(queue: RedisMessageQueue, **arguments: Any) -> RedisQueueSensor:
    return RedisQueueSensor(
        task_id="gate", queue_name=queue.name, min_ready=3, claim=True, max_messages=5, poke_interval=0.01, **arguments
    )


def attached(queue: RedisMessageQueue, handle: dict[str, str]) -> Any:
    return queue.attach(LeaseHandle.from_dict(handle), heartbeat=False)


def test_an_open_gate_leases_a_batch_and_hands_on_the_handle(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many("abcdefg")

    handle = claiming(queue).execute({"ti": instance})  # type: ignore[typeddict-item]

    assert set(handle) == {"queue", "id", "token", "lease_seconds"}
    lease = attached(queue, handle)
    assert [message.payload for message in lease.messages] == [b"a", b"b", b"c", b"d", b"e"]
    assert (queue.depth().in_flight, queue.depth().ready) == (5, 2)
    lease.ack()


def test_a_retry_takes_over_the_batch_that_its_earlier_try_left(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many("abc")
    context: Any = {"ti": instance}
    first = claiming(queue).execute(context)  # and the worker dies

    again = claiming(queue, deferrable=True).execute(context)

    assert again["id"] == first["id"]
    assert [message.delivery_count for message in attached(queue, again).messages] == [2, 2, 2]


def test_a_retry_without_a_batch_claims_none_behind_a_closed_gate(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many("ab")

    deferred(claiming(queue, deferrable=True), {"ti": instance})

    assert queue.depth().in_flight == 0


def test_a_cleared_sensor_whose_batch_is_acked_says_so_and_is_skipped(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    queue.publish_many("abcdef")
    context: Any = {"ti": instance}
    attached(queue, claiming(queue).execute(context)).ack()
    queue.publish_many("ghi")

    with pytest.raises(AirflowSkipException, match="5 of its messages are acked; start a new DAG run"):
        claiming(queue, deferrable=True).execute(context)

    assert queue.depth().in_flight == 0


def test_a_race_that_is_lost_waits_again_for_what_is_left_of_the_timeout(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    gate = claiming(queue, deferrable=True, timeout=1000)
    gate.poke_interval = 30
    deadline = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    event = {"status": "open", "value": {}}

    with pytest.raises(TaskDeferred) as found:
        gate.execute_complete({"ti": instance}, event, deadline)  # type: ignore[typeddict-item]

    assert 90 < found.value.timeout.total_seconds() <= 100
    assert found.value.kwargs == {"deadline": deadline}
    assert found.value.trigger.initial_delay_seconds == gate.poke_interval, "not at once: the gate may still be open"


def test_a_task_that_began_in_the_triggerer_keeps_its_deadline(queue: RedisMessageQueue, instance: Instance) -> None:
    instance.start_date = datetime.now(UTC) - timedelta(seconds=30)
    gate = claiming(queue, start_from_trigger=True, timeout=100)

    with pytest.raises(TaskDeferred) as found:
        gate.execute_complete({"ti": instance}, {"status": "open", "value": {}})  # type: ignore[typeddict-item]

    assert 60 < found.value.timeout.total_seconds() <= 70


def test_a_race_that_is_lost_at_the_deadline_is_a_timeout(queue: RedisMessageQueue, instance: Instance) -> None:
    past = datetime.now(UTC).isoformat()

    with pytest.raises(AirflowSensorTimeout, match="gave no messages within the sensor's timeout"):
        claiming(queue, deferrable=True).execute_complete(
            {"ti": instance},  # type: ignore[typeddict-item]
            {"status": "open", "value": {}},
            past,
        )


def test_several_sensors_at_one_gate_get_batches_of_their_own(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcdef")
    contexts: list[Any] = []
    for number in range(3):
        instance = Instance()
        instance.run_id = f"run-{number}"
        contexts.append({"ti": instance})
    event = {"status": "open", "value": {}}  # all three saw the gate open

    handles = [
        RedisQueueSensor(
            task_id="gate", queue_name=queue.name, min_ready=2, claim=True, max_messages=2
        ).execute_complete(context, event)
        for context in contexts
    ]

    payloads = [message.payload for handle in handles for message in attached(queue, handle).messages]
    assert payloads == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"queue_name": ["a", "b"]}, "leases messages of one queue"),
        ({"min_dead": 1}, "cannot wait for min_dead"),
        ({"max_messages": 0}, "max_messages must be"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"claim": "True"}, "claim must be True or False"),
    ],
)
def test_a_claim_that_cannot_work_is_refused_when_the_dag_is_read(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RedisQueueSensor(task_id="gate", **{"queue_name": "orders", "claim": True, **arguments})


# ---------------------------------------------------------------------- an outage between pokes


class Store(dict[str, Any]):
    """Airflow's state of a task, which outlives its processes."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        del self[key]


def rescheduled(gate: RedisQueueSensor, context: Any) -> None:
    with pytest.raises(AirflowRescheduleException):
        gate.execute(context)
    context["task_reschedule_count"] += 1


def test_a_rescheduled_sensor_outlives_an_outage_within_its_budget(
    connect: Connect, queue: RedisMessageQueue, embedded_url: str
) -> None:
    store = Store()
    context: Any = {"ti": TaskInstance(), "task_reschedule_count": 0, "task_state_store": store}
    queue.publish("a")
    gate = sensor(queue, mode="reschedule", queue_options={"retry_budget_seconds": 30})
    connect(host="localhost", port=free_port())
    rescheduled(gate, context)
    rescheduled(gate, context)
    (key, since), *others = store.items()
    assert others == []

    connect(extra={"url": embedded_url})
    assert gate.execute(context)["ready"] == 1
    assert store == {}, "a later outage has a budget of its own"

    connect(host="localhost", port=free_port())
    store[key] = (datetime.fromisoformat(since) - timedelta(seconds=31)).isoformat()
    with pytest.raises(RedisUnavailableError):
        gate.execute(context)
    assert store == {}, "the next try has a budget of its own"


def test_a_rescheduled_sensor_without_airflows_state_waits_until_its_timeout(connect: Connect) -> None:
    connect(host="localhost", port=free_port())
    context: Any = {"ti": TaskInstance(), "task_reschedule_count": 0}
    gate = sensor("orders", mode="reschedule", queue_options={"retry_budget_seconds": 0})

    rescheduled(gate, context)
    rescheduled(gate, context)


def test_a_rescheduled_sensor_fails_at_once_for_what_no_wait_can_cure(connect: Connect) -> None:
    context: Any = {"ti": TaskInstance(), "task_reschedule_count": 0, "task_state_store": Store()}

    with pytest.raises(AirflowNotFoundException):
        sensor("orders", mode="reschedule", redis_conn_id="absent").execute(context)


def test_the_documentations_gate_gives_each_run_a_batch_of_its_own(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "bill_orders.py"
    file.write_text(snippet("airflow-sensor"))
    with RedisMessageQueue("to-bill", url=embedded_url) as queue, airflow_deployment.dags([file]) as dags:
        queue.publish_many({"amount": amount} for amount in range(1000))
        for day, total in zip(DAYS, (sum(range(500)), sum(range(500, 1000))), strict=True):
            run = dags["bill_orders"].test(logical_date=None, run_after=timezone.parse(day))
            assert states(run) == {"gate": "success", "bill": "success", "settle": "success"}
            assert xcoms(run)["bill"] == total
        assert (queue.stats().acked, queue.depth().ready) == (1000, 0)


def test_airflow_defers_and_resumes_the_sensor(
    airflow_deployment: Deployment, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DepthPoller.run_once
    looks = 0

    async def publishes_at_the_third_look(poller: Any) -> float:
        nonlocal looks
        looks += 1
        if looks == 3:
            queue.publish("a")
        return await original(poller)

    monkeypatch.setattr(DepthPoller, "run_once", publishes_at_the_third_look)
    with airflow_deployment.dags([Path(__file__).parent / "dags" / "waits.py"]) as dags:
        run = dags["waits"].test(run_conf={"queue": queue.name})

    assert states(run) == {"gate": "success", "after": "success"}
    assert looks == 3
    assert xcoms(run)["gate"]["ready"] == 1
    assert xcoms(run)["after"] == 1
