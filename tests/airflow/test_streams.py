"""Every class that names a queue takes a stream and a group in its place. Real Redis."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from airflow.cli import cli_parser
from airflow.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.assets.redis_queue import convert_asset_to_openlineage, create_asset
from airflow_provider_sluicegate.cli.definition import get_cli_commands
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier
from airflow_provider_sluicegate.operators.administration import RedisQueuePurgeOperator, RedisQueueRedriveOperator
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import (
    RedisQueueClaimOperator,
    RedisQueueKeepLeaseOperator,
    RedisQueueSettleLeaseOperator,
)
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from airflow_provider_sluicegate.stats import emit_depth
from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger
from airflow_provider_sluicegate.triggers.lease import RedisQueueLeaseTrigger
from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger
from sluicegate import Message
from sluicegate.place import Place
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.handlers import accept
from tests.airflow.instance import Instance
from tests.airflow.metrics import Client, Server, sending
from tests.airflow.test_triggers import event_of, run
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow


@pytest.fixture
def stream(embedded_url: str, connect: Connect, queue_name: str) -> Iterator[RedisStreamQueue]:
    """Yield a stream of this test with two groups, on the embedded server, which is the default connection too."""
    connect(extra={"url": embedded_url})
    with RedisStreamQueue(queue_name, url=embedded_url) as stream:
        for name in ("billing", "audit"):
            stream.group(name).create("beginning")
        yield stream


@pytest.fixture
def names(stream: RedisStreamQueue) -> dict[str, str]:
    """Return the arguments that name the group `billing`."""
    return {"stream": stream.name, "group": "billing"}


@pytest.fixture
def group(stream: RedisStreamQueue) -> ConsumerGroup:
    return stream.group("billing")


def filled(stream: RedisStreamQueue, count: int) -> None:
    stream.publish_many([{"n": number} for number in range(count)])


# ---------------------------------------------------------------------- publish


def test_a_task_publishes_to_a_stream_once(stream: RedisStreamQueue, instance: Instance) -> None:
    def publish() -> dict[str, Any]:
        return RedisQueuePublishOperator(
            task_id="publish", stream=stream.name, messages=[{"n": n} for n in range(5)], deduplication_key="n"
        ).execute({"ti": instance})  # type: ignore[typeddict-item]

    first, second = publish(), publish()

    assert (first["stream"], first["published"], first["duplicates"]) == (stream.name, 5, 0)
    assert "queue" not in first
    assert (second["published"], second["duplicates"]) == (0, 5)
    assert [stream.group(name).lag() for name in stream.groups()] == [5, 5]
    assert first["last_message_id"] == stream.info().last_id


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"delay_seconds": 5}, "delays no messages; leave delay_seconds and due_at out"),
        ({"due_at": datetime.now(UTC) + timedelta(hours=1)}, "or publish to a queue"),
        ({"deferrable": True, "deduplication_key": "n"}, "is never full"),
        ({"queue_options": {"max_pending_length": 5}}, "a stream refuses nothing; max_length says"),
    ],
)
def test_what_a_stream_does_not_have_fails_at_once(
    stream: RedisStreamQueue, instance: Instance, arguments: dict[str, Any], says: str
) -> None:
    operator = RedisQueuePublishOperator(task_id="publish", stream=stream.name, messages=[{"n": 1}], **arguments)

    with pytest.raises(AirflowFailException, match=says):
        operator.execute({"ti": instance})  # type: ignore[typeddict-item]
    assert stream.info().length == 0


def test_notifications_go_to_a_stream(stream: RedisStreamQueue) -> None:
    RedisQueueNotifier(stream=stream.name, message={"way": "sync"}).notify({})  # type: ignore[typeddict-item]
    asyncio.run(RedisQueueNotifier(stream=stream.name, message={"way": "async"}).async_notify({}))  # type: ignore[typeddict-item]

    with stream.group("billing").claim(5) as lease:
        assert [message.json()["way"] for message in lease.messages] == ["sync", "async"]


# ---------------------------------------------------------------------- the gate


def test_a_sensor_opens_by_what_a_group_has_not_read(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup
) -> None:
    filled(stream, 5)
    stream.group("audit").claim(5).ack()

    def poke(**arguments: Any) -> Any:
        return RedisQueueSensor(task_id="gate", min_ready=4, **arguments).poke({}).xcom_value

    found = poke(**names)
    assert (found["stream"], found["group"], found["ready"], found["fired_by"]) == (stream.name, "billing", 5, "depth")
    assert "queue" not in found
    assert poke(stream=stream.name, group="audit") is None
    both = poke(stream=stream.name, group=["audit", "billing"])
    assert both["open"] == ["billing"]
    assert [one["group"] for one in both["groups"]] == ["audit", "billing"]
    assert poke(stream=stream.name, group=["audit", "billing"], match="all") is None
    group.claim(2).ack()
    assert poke(**names) is None


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_sensor_creates_a_group_only_where_it_may_start(
    stream: RedisStreamQueue, instance: Instance, deferrable: bool
) -> None:
    filled(stream, 2)

    def gate(**options: Any) -> Any:
        names = {"stream": stream.name, "group": "new", "queue_options": options}
        return RedisQueueSensor(task_id="gate", min_ready=2, deferrable=deferrable, **names)

    with pytest.raises(AirflowFailException, match=r"has no such group; create it with group.create\(start=...\)"):
        gate().execute({"ti": instance})
    assert gate(start="beginning").execute({"ti": instance})["ready"] == 2
    assert gate().execute({"ti": instance})["group"] == "new"


def test_a_missing_group_ends_its_trigger_and_no_other(stream: RedisStreamQueue, names: dict[str, str]) -> None:
    filled(stream, 2)
    missing = RedisQueueTrigger(stream=stream.name, group="new", min_ready=1)

    async def work() -> list[dict[str, Any]]:
        return list(await asyncio.gather(event_of(missing), event_of(RedisQueueTrigger(min_ready=1, **names))))

    ended, fired = run(work)
    assert (ended["status"], ended["is_permanent"]) == ("error", True)
    assert "has no such group" in ended["error"]
    assert fired["value"]["ready"] == 2


def test_a_sensor_leases_a_batch_of_a_group_that_other_tasks_work_on(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup, instance: Instance
) -> None:
    filled(stream, 3)
    gate = RedisQueueSensor(task_id="gate", claim=True, max_messages=2, **names)

    handle = gate.execute({"ti": instance})  # type: ignore[typeddict-item]
    with attached_lease(handle) as lease:
        assert [message.json()["n"] for message in lease.messages] == [0, 1]
    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=handle, work_task_ids=["work"])
    counts = settle.execute({"ti": instance})  # type: ignore[typeddict-item]

    assert {name: handle[name] for name in names} == names
    assert counts == {"acked": 2, "returned": 0, "buried": 0}
    assert (group.depth().ready, group.depth().in_flight) == (1, 0)
    assert stream.group("audit").depth().ready == 3


@pytest.mark.parametrize("make", [RedisQueueTrigger, RedisQueueEventTrigger])
def test_a_trigger_fires_for_a_group(make: Any, stream: RedisStreamQueue, names: dict[str, str]) -> None:
    filled(stream, 2)

    event = run(lambda: event_of(make(min_ready=2, **names)))

    value = event.get("value", event)
    assert {name: value[name] for name in names} == names
    assert (value["ready"], value["fired_by"]) == (2, "depth")


def test_a_sensor_of_a_group_defers_and_resumes(
    stream: RedisStreamQueue, names: dict[str, str], instance: Instance
) -> None:
    gate = RedisQueueSensor(task_id="gate", min_ready=2, deferrable=True, poke_interval=0.02, **names)
    with pytest.raises(TaskDeferred) as deferred:
        gate.execute({"ti": instance})  # type: ignore[typeddict-item]
    trigger: Any = deferred.value.trigger
    trigger.initial_delay_seconds = 0
    filled(stream, 2)

    event = run(lambda: event_of(trigger))

    assert gate.execute_complete({"ti": instance}, event)["group"] == "billing"  # type: ignore[typeddict-item]


def test_messages_of_a_group_are_carried_in_asset_events(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup
) -> None:
    if not compat.has_shared_streams():
        return  # Airflow below 3.3 has no such trigger
    from airflow_provider_sluicegate.triggers.delivery import RedisQueueDeliveryTrigger
    from tests.airflow.test_delivery_trigger import Watching, triggerer, until

    filled(stream, 1)

    async def work() -> dict[str, Any]:
        async with triggerer() as manager:
            watching = Watching(manager, RedisQueueDeliveryTrigger(**names), 1)
            event, stored = await watching.next()
            following = asyncio.create_task(watching.next())
            manager.confirm_persisted([stored])
            await until(lambda: group.stats().acked == 1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await watching.leave()
        return event

    event = run(work)
    assert {name: event[name] for name in names} == names
    assert [message["payload"] for message in event["messages"]] == [{"n": 0}]
    assert group.depth().in_flight == 0


# ---------------------------------------------------------------------- consume and drain


def test_a_drain_works_on_what_a_group_has_not_read(
    stream: RedisStreamQueue, names: dict[str, str], instance: Instance
) -> None:
    filled(stream, 25)
    seen: list[int] = []

    def process(batch: list[Message]) -> None:
        seen.extend(message.json()["n"] for message in batch)

    operator = RedisQueueDrainOperator(task_id="work", process=process, batch_size=10, **names)
    report: Any = operator.execute({"ti": instance})  # type: ignore[typeddict-item]

    assert seen == list(range(25))
    assert (report["acked"], report["claimed"]) == (25, 25)
    assert {name: stream.group(name).lag() for name in stream.groups()} == {"billing": 0, "audit": 25}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_several_workers_drain_a_group(
    kind: Any, stream: RedisStreamQueue, names: dict[str, str], instance: Instance
) -> None:
    filled(stream, 20)

    operator = RedisQueueDrainOperator(
        task_id="work", process=accept, workers=2, worker_kind=kind, batch_size=5, **names
    )
    report: Any = operator.execute({"ti": instance})  # type: ignore[typeddict-item]

    assert report["acked"] == 20
    assert stream.group("billing").depth().ready == 0


def test_a_group_that_does_not_exist_says_where_it_could_start(stream: RedisStreamQueue, instance: Instance) -> None:
    filled(stream, 3)
    names = {"stream": stream.name, "group": "new"}

    with pytest.raises(AirflowFailException, match="start"):
        RedisQueueDrainOperator(task_id="work", process=accept, **names).execute({"ti": instance})  # type: ignore[typeddict-item]
    report: Any = RedisQueueDrainOperator(
        task_id="work", process=accept, queue_options={"start": "beginning"}, **names
    ).execute({"ti": instance})  # type: ignore[typeddict-item]

    assert report["acked"] == 3


def test_a_batch_of_a_group_is_handed_on(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup, instance: Instance
) -> None:
    filled(stream, 3)
    operator = RedisQueueConsumeOperator(task_id="batch", max_messages=2, **names)

    batch = operator.execute({"ti": instance})  # type: ignore[typeddict-item]
    assert (group.depth().in_flight, group.stats().acked) == (2, 0)
    operator.on_success_callback[0]({"ti": instance})  # type: ignore[index, typeddict-item, operator]

    assert [message["payload"] for message in batch] == [{"n": 0}, {"n": 1}]
    assert group.stats().acked == 2


def test_a_lease_of_a_group_is_kept_from_the_triggerer(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup, instance: Instance
) -> None:
    filled(stream, 2)
    handle = RedisQueueClaimOperator(task_id="claim", lease_seconds=300, **names).execute({"ti": instance})  # type: ignore[typeddict-item]
    assert handle is not None
    with pytest.raises(TaskDeferred) as deferred:
        RedisQueueKeepLeaseOperator(task_id="keep", lease=handle).execute({"ti": instance})  # type: ignore[typeddict-item]
    trigger: Any = deferred.value.trigger
    assert isinstance(trigger, RedisQueueLeaseTrigger)
    trigger.min_seconds = 0
    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=handle, work_task_ids=["work"])
    settle.execute({"ti": instance})  # type: ignore[typeddict-item]

    event = run(lambda: event_of(trigger))

    assert event["status"] == "ended"
    assert group.stats().acked == 2


def test_dead_letters_of_a_group_are_redriven_and_purged(
    stream: RedisStreamQueue, names: dict[str, str], group: ConsumerGroup, instance: Instance
) -> None:
    filled(stream, 3)
    group.claim(3).bury(error="why")

    again = RedisQueueRedriveOperator(task_id="again", limit=2, **names).execute({"ti": instance})  # type: ignore[typeddict-item]
    clean = RedisQueuePurgeOperator(task_id="clean", state="dead", **names).execute({"ti": instance})  # type: ignore[typeddict-item]

    assert {name: again[name] for name in names} == names == {name: clean[name] for name in names}
    assert (again["redriven"], clean["total"]) == (2, 1)
    assert (group.depth().ready, group.depth().dead) == (2, 0)
    assert stream.group("audit").depth().ready == 3, "the other group has all"


# ---------------------------------------------------------------------- hook, commands, metrics


def test_a_hook_opens_streams_and_groups(stream: RedisStreamQueue) -> None:
    with RedisQueueHook() as hook:
        hook.get_stream(stream.name).publish({"n": 1})
        with hook.get_group(stream.name, "billing").claim(1) as lease:
            assert lease.messages[0].json() == {"n": 1}
        assert hook.get_group(stream.name, "late", start="end").depth().ready == 0

    async def work() -> int:
        async with RedisQueueHook() as hook:
            await (await hook.aopen_place(Place(stream.name, stream=True))).publish({"n": 2})
            group = await hook.aopen_place(Place(stream.name, stream=True, group="audit"))
            ready: int = (await group.depth()).ready
            return ready

    assert run(work) == 2


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command of `airflow sluicegate` and return its rows."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # restored after the command has set it
    parser = argparse.ArgumentParser()
    cli_parser._add_command(parser.add_subparsers(), get_cli_commands()[0])

    def run(*words: str) -> Any:
        arguments = parser.parse_args(["sluicegate", *words, "--output", "json"])
        capsys.readouterr()
        arguments.func(arguments)
        return json.loads(capsys.readouterr().out)

    return run


def test_commands_take_groups(stream: RedisStreamQueue, group: ConsumerGroup, cli: Callable[..., Any]) -> None:
    filled(stream, 4)
    group.claim(1).bury(reason="broken", error="why")
    name = ("--stream", stream.name)
    one = (*name, "--group", "billing")

    assert {row["group"]: row["ready"] for row in cli("depth", *name)} == {"billing": "3", "audit": "4"}
    assert [row["dead"] for row in cli("depth", *one)] == ["1"]
    assert len(cli("peek", *one)) == 3
    assert [row["reason"] for row in cli("peek", *one, "--state", "dead")] == ["broken"]
    assert [row["changed"] for row in cli("pause", *one)] == ["True"]
    assert group.depth().paused
    assert [row["group"] for row in cli("resume", *one)] == ["billing"]
    (row,) = cli("redrive", *one)
    assert (row["stream"], row["redriven"]) == (stream.name, "1")
    (row,) = cli("purge", *one, "--state", "pending", "--yes")
    assert (row["group"], row["deleted"]) == ("billing", "3")
    assert (group.depth().ready, stream.group("audit").depth().ready) == (1, 4), "what was redriven is returned"


def test_the_gauges_of_a_group_have_its_names(stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    filled(stream, 2)
    server = Server()

    with sending(compat.stats(), Client(server.port)):
        emit_depth(Place("orders.eu", stream=True, group="bill:ing"), group.depth())

    found = server.read(8)
    assert found["airflow.sluicegate.group.ready"] == 2
    assert found["airflow.sluicegate.group.ready.orders__eu.bill_ing"] == 2
    server.close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Airflow's collector as if somebody read it; OpenLineage is off in this process."""
    sdk = "airflow.sdk.lineage"  # from Airflow 3.2 on
    lineage: Any = importlib.import_module(sdk if find_spec(sdk) else "airflow.lineage.hook")
    fresh = lineage.HookLineageCollector()
    monkeypatch.setattr(compat, "collects_hook_lineage", lambda: True)
    monkeypatch.setattr(lineage, "get_hook_lineage_collector", lambda: fresh)
    return fresh


def test_the_publish_and_every_group_have_one_dataset(
    stream: RedisStreamQueue, names: dict[str, str], collector: Any, instance: Instance
) -> None:
    with RedisQueueHook() as hook:
        hook.get_stream(stream.name).publish({"n": 1})
        for name in ("billing", "audit"):
            hook.get_group(stream.name, name).claim(1).ack()
        uri = create_asset(stream=stream.name).uri
        assert [info.asset.uri for info in collector.collected_assets.outputs] == [uri]
        assert {info.asset.uri for info in collector.collected_assets.inputs} == {uri}
        collected = convert_asset_to_openlineage(collector.collected_assets.inputs[0].asset, hook)

    filled(stream, 2)
    work = RedisQueueDrainOperator(task_id="work", process=accept, **names)
    work.execute({"ti": instance})  # type: ignore[typeddict-item]
    instance.state = "success"
    (read,) = work.get_openlineage_facets_on_complete(instance).inputs
    gate = RedisQueueSensor(task_id="gate", stream=stream.name, group=["audit", "billing"])
    watched = gate.get_openlineage_facets_on_complete(instance).inputs

    assert read.name == collected.name == f"stream:{stream.name}"
    assert read.inputFacets["inputStatistics"].rowCount == 2
    assert [one.name for one in watched] == [f"stream:{stream.name}"]


# ---------------------------------------------------------------------- a DAG


def test_the_documentations_dag_fans_out(
    airflow_deployment: Deployment, stream: RedisStreamQueue, tmp_path: Path
) -> None:
    file = tmp_path / "fan_out_orders.py"
    file.write_text(snippet("airflow-stream"))
    with airflow_deployment.dags([file]) as dags:
        done = dags["fan_out_orders"].test()

    found = xcoms(done)
    assert found["publish"]["stream"] == "order-events"
    assert [found[name]["acked"] for name in ("bill", "audit")] == [found["publish"]["published"]] * 2 == [2, 2]


def test_two_tasks_of_a_dag_get_every_message_of_one_publish(
    airflow_deployment: Deployment, stream: RedisStreamQueue
) -> None:
    file = Path(__file__).parent / "dags" / "streams.py"
    with airflow_deployment.dags([file]) as dags:
        done = dags["streams"].test(run_conf={"stream": stream.name})

    assert states(done) == {"publish": "success", "gate": "success", "bill": "success", "audit": "success"}
    found = xcoms(done)
    assert (found["publish"]["stream"], found["publish"]["published"]) == (stream.name, 40)
    assert (found["gate"]["group"], found["gate"]["ready"]) == ("billing", 40)
    assert [found[name]["acked"] for name in ("bill", "audit")] == [40, 40]
    assert airflow_deployment.rendered(done, "bill")["group"] == "billing"
