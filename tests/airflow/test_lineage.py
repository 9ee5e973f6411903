"""What Airflow's lineage learns: by hooks, and from the events that the OpenLineage provider writes to a file."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.lineage import reporting
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from sluicegate import QueueEvent, RedisMessageQueue
from sluicegate.errors import ConfigurationError, DrainFailedError
from tests.airflow.conftest import Connect
from tests.airflow.deployment import Deployment
from tests.airflow.instance import Instance
from tests.support.project import ROOT

pytestmark = pytest.mark.airflow

SDK = "airflow.sdk.lineage"  # from Airflow 3.2 on
DAG_FILE = Path(__file__).parent / "dags" / "lineage.py"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Airflow's collector as if somebody read it; OpenLineage is off in this process."""
    lineage: Any = importlib.import_module(SDK if find_spec(SDK) else "airflow.lineage.hook")
    fresh = lineage.HookLineageCollector()
    monkeypatch.setattr(compat, "collects_hook_lineage", lambda: True)
    monkeypatch.setattr(lineage, "get_hook_lineage_collector", lambda: fresh)
    return fresh


def uris(assets: Any) -> list[tuple[str, int]]:
    return [(info.asset.uri, info.count) for info in assets]


# ---------------------------------------------------------------------- hooks


def test_a_queue_is_an_output_at_its_first_publish_and_an_input_at_its_first_claim(
    collector: Any, queue: RedisMessageQueue
) -> None:
    uri = f"sluicegate://sluicegate_default/{queue.name}"
    with RedisQueueHook() as hook:
        watched = hook.get_queue(queue.name)
        watched.depth()
        assert not collector.has_collected

        for number in range(3):
            watched.publish({"id": number})
        assert uris(collector.collected_assets.outputs) == [(uri, 1)]
        assert uris(collector.collected_assets.inputs) == []

        watched.claim(1).ack()
        watched.claim(1).ack()
        assert uris(collector.collected_assets.inputs) == [(uri, 1)]
        assert uris(collector.collected_assets.outputs) == [(uri, 1)]
        assert [info.context for info in collector.collected_assets.inputs] == [hook]


def test_an_empty_queue_was_read_and_a_refused_duplicate_was_written(collector: Any, queue: RedisMessageQueue) -> None:
    RedisMessageQueue(queue.name, gateway=queue.session.runner.gateway, get_deduplication_key="id").publish({"id": 1})
    queue.claim(1).ack()
    with RedisQueueHook() as hook:
        watched = hook.get_queue(queue.name, get_deduplication_key="id")
        assert not watched.claim(1)
        assert len(collector.collected_assets.inputs) == 1
        assert watched.publish({"id": 1}) is False
        assert len(collector.collected_assets.outputs) == 1


def test_a_queue_for_asyncio_is_reported_too(collector: Any, queue: RedisMessageQueue) -> None:
    seen: list[QueueEvent] = []

    async def see(event: QueueEvent) -> None:
        seen.append(event)

    async def publish() -> None:
        async with RedisQueueHook() as hook:
            await (await hook.aget_queue(queue.name, on_event=see)).publish({"id": 1})

    asyncio.run(publish())

    assert len(collector.collected_assets.outputs) == 1
    assert [event.operation for event in seen] == ["publish"]


def test_an_on_event_of_the_queue_still_gets_every_event(collector: Any, queue: RedisMessageQueue) -> None:
    seen: list[QueueEvent] = []
    with RedisQueueHook() as hook:
        watched = hook.get_queue(queue.name, on_event=seen.append)
        watched.publish({"id": 1})
        watched.publish({"id": 2})

    assert [(event.operation, event.count) for event in seen] == [("publish", 1), ("publish", 1)]
    assert len(collector.collected_assets.outputs) == 1


@pytest.mark.usefixtures("collector")
def test_an_on_event_that_cannot_work_is_refused_as_before(queue: RedisMessageQueue) -> None:
    async def see(event: QueueEvent) -> None: ...

    with RedisQueueHook() as hook:
        with pytest.raises(ConfigurationError, match="on_event is async"):
            hook.get_queue(queue.name, on_event=see)
        with pytest.raises(ConfigurationError, match="on_event must be"):
            hook.get_queue(queue.name, on_event="print")  # type: ignore[arg-type]


def test_a_failing_lineage_is_logged_once_and_the_publish_works(
    collector: Any, queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**arguments: Any) -> None:
        raise RuntimeError("no such plugin")

    monkeypatch.setattr(collector, "add_output_asset", fail)
    with RedisQueueHook() as hook, caplog.at_level(logging.WARNING):
        watched = hook.get_queue(queue.name)
        watched.publish({"id": 1})
        watched.publish({"id": 2})

    assert queue.depth().ready == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"queue {queue.name!r} could not be reported to Airflow's lineage: no such plugin"
    ]


def test_without_a_reader_and_in_the_triggerer_a_queue_has_no_observer(
    collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reporting(RedisQueueHook(), "orders", None) is not None
    monkeypatch.undo()

    assert compat.collects_hook_lineage() is False
    assert reporting(RedisQueueHook(), "orders", None) is None
    assert reporting(RedisQueueHook(), "orders", print) is print


# ---------------------------------------------------------------------- OpenLineage


def lineage_of(operator: Any, state: str) -> Any:
    """Return what the OpenLineage provider makes of an operator that was executed."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    manager: Any = ExtractorManager()
    instance = SimpleNamespace(state=state, task=operator)
    return manager.extract_metadata(SimpleNamespace(run_id="run"), operator, state, instance)


def described(datasets: Any) -> list[tuple[str, int | None]]:
    """Return the names of datasets with their row counts."""
    found = []
    for dataset in datasets:
        facets = getattr(dataset, "inputFacets", None) or getattr(dataset, "outputFacets", None) or {}
        statistics = facets.get("inputStatistics") or facets.get("outputStatistics")
        found.append((dataset.name, statistics and statistics.rowCount))
    return found


def fail_on_odd(batch: list[Any]) -> None:
    if any(message.json()["id"] % 2 for message in batch):
        raise RuntimeError("odd")


def test_a_failed_drain_has_read_what_it_acked(collector: Any, queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many([{"id": number} for number in range(5)])
    drain = RedisQueueDrainOperator(task_id="drain", queue_name=queue.name, process=fail_on_odd)
    with pytest.raises(DrainFailedError):
        drain.execute({"ti": instance})  # type: ignore[typeddict-item]

    lineage = lineage_of(drain, "failed")

    assert (described(lineage.inputs), described(lineage.outputs)) == ([(queue.name, 3)], [])


@pytest.mark.usefixtures("collector")
def test_what_a_handler_writes_by_a_hook_is_reported_with_its_drain(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    def forward(batch: list[Any]) -> None:
        with RedisQueueHook() as hook:
            hook.get_queue(f"{queue.name}-forwarded").publish_many([message.payload for message in batch])

    queue.publish_many([{"id": number} for number in range(3)])
    drain = RedisQueueDrainOperator(task_id="drain", queue_name=queue.name, process=forward)
    drain.execute({"ti": instance})  # type: ignore[typeddict-item]

    lineage = lineage_of(drain, "success")

    assert described(lineage.inputs) == [(queue.name, 3)]
    assert described(lineage.outputs) == [(f"{queue.name}-forwarded", None)]


def test_a_publish_that_stopped_has_written_what_it_published(queue: RedisMessageQueue) -> None:
    publish = RedisQueuePublishOperator(
        task_id="publish", queue_name=queue.name, messages=[{"id": 1}, {"id": 2}, object()], batch_size=2
    )
    with pytest.raises(Exception, match="message 3"):
        publish.execute({})

    lineage = lineage_of(publish, "failed")

    assert (described(lineage.inputs), described(lineage.outputs)) == ([], [(queue.name, 2)])


def test_a_claim_has_read_its_batch(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many([{"id": number} for number in range(5)])
    claim = RedisQueueClaimOperator(task_id="claim", queue_name=queue.name, max_messages=4)
    claim.execute({"ti": instance})  # type: ignore[typeddict-item]

    assert described(lineage_of(claim, "success").inputs) == [(queue.name, 4)]


def test_a_sensor_has_read_each_of_its_queues(connect: Connect) -> None:
    connect(host="cache")
    sensor = RedisQueueSensor(task_id="gate", queue_name=["orders", "returns"])

    assert described(lineage_of(sensor, "success").inputs) == [("orders", None), ("returns", None)]


def test_a_task_that_failed_before_it_counted_reports_no_number(connect: Connect) -> None:
    connect(host="cache", extra={"db": 1})
    drain = RedisQueueDrainOperator(task_id="drain", queue_name="orders", process="no.such:module")

    (dataset,) = lineage_of(drain, "failed").inputs

    assert (dataset.namespace, dataset.name, dataset.inputFacets) == ("redis://cache:6379/1", "orders", {})


@pytest.mark.full
def test_openlineage_gets_what_each_task_reads_and_writes(
    airflow_deployment: Deployment,
    queue: RedisMessageQueue,
    embedded_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "events"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    program = [sys.executable, "-m", "tests.airflow.supervised", str(airflow_deployment.home), str(DAG_FILE)]

    subprocess.run([*program, "lineage", queue.name], cwd=ROOT, check=True, timeout=200)

    text = file.read_text()
    assert "FINCH" not in text
    found = {}
    for event in map(json.loads, text.splitlines()):
        _, _, task = event["job"]["name"].partition(".")
        if event["eventType"] == "COMPLETE" and task:
            found[task] = tuple(sorted(map(row_count, event[side])) for side in ("inputs", "outputs"))
            assert {dataset["namespace"] for dataset in event["inputs"] + event["outputs"]} == {embedded_url}
    assert found == {
        "publish": ([], [(queue.name, 5)]),
        "consume": ([(queue.name, 2)], []),
        "drain": ([(queue.name, 3)], [("forwarded", None)]),
        "move": ([("forwarded", None)], [("moved", None)]),
        "declare": ([("declared", None)], []),
    }


def row_count(dataset: dict[str, Any]) -> tuple[str, int | None]:
    facets = dataset.get("inputFacets") or dataset.get("outputFacets") or {}
    return dataset["name"], next((facet["rowCount"] for facet in facets.values()), None)
