"""The gate: when it opens, when it stays shut, and that looking changes nothing. Real Redis, no scheduler."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import redis
from airflow.exceptions import AirflowRescheduleException, AirflowSensorTimeout

from airflow_provider_sluicegate.compat import AirflowFailException
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from sluicegate import RedisMessageQueue
from sluicegate.embedded import connect as connect_embedded
from sluicegate.errors import ConfigurationError, RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.support.servers import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.airflow


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
