"""Dagster Pipes: a process of its own drains, acks and reports, and gets nothing but the name of its leases."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource, queue_has_work, queue_pipes_extras, report_drain, run_id_of
from sluicegate import RedisMessageQueue, drain
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import asset_job, re_execute
from tests.support.project import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

Job = Callable[..., dg.JobDefinition]


@pytest.fixture
def job(resource: RedisQueueResource, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a function that makes the job of an asset whose process drains the queue of the test."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "tests.dagster.pipes_driver", url, resource.queue_name, str(tmp_path)]

    def make(**options: Any) -> dg.JobDefinition:
        @dg.multi_asset(specs=[dg.AssetSpec("stored", skippable=True)], **options)
        def stored(
            context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient, queue: RedisQueueResource
        ) -> Iterator[Any]:
            if queue_has_work(context, queue):
                process = pipes.run(context=context, command=command, extras=queue_pipes_extras(context))
                yield from process.get_results()

        return asset_job([stored], {"pipes": dg.PipesSubprocessClient(), "queue": resource})

    return make


def numbers_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


def stored_about(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return everything that Dagster stored about a run."""
    return "\n".join(str(entry) for entry in instance.all_logs(run_id))


def materialized(instance: dg.DagsterInstance, run_id: str) -> dict[str, Any]:
    """Return the metadata of the run's only materialization."""
    (event,) = [entry.asset_materialization for entry in instance.all_logs(run_id) if entry.asset_materialization]
    return {name: value.value for name, value in event.metadata.items()}


def test_the_process_drains_and_its_report_is_the_materialization(
    queue: RedisMessageQueue, job: Job, instance: dg.DagsterInstance, tmp_path: Path, url: str
) -> None:
    queue.publish_many({"n": n, "note": "CANARY"} for n in range(25))

    result = job().execute_in_process(instance=instance)

    found = materialized(instance, result.run_id)
    rows = [dict(record.data) for record in found.pop("sluicegate/partitions").records]
    assert [(row["partition"], row["batches"], row["acked"], row["ended"]) for row in rows] == [(0, 3, 25, "empty")]
    assert found.pop("sluicegate/seconds") > 0
    assert found.pop("sluicegate/bytes") > 25 * len('{"n": 1}')
    assert found == {
        "dagster/row_count": 25,
        "sluicegate/queue": queue.name,
        "sluicegate/batches": 3,
        "sluicegate/claimed": 25,
        "sluicegate/acked": 25,
        "sluicegate/returned": 0,
        "sluicegate/buried": 0,
        "sluicegate/failed": 0,
        "sluicegate/taken_over": 0,
        "sluicegate/ready_left": 0,
    }
    assert json.loads((tmp_path / "extras").read_text()) == {"sluicegate/run_id": f"{result.run_id}:stored"}
    assert numbers_in(tmp_path) == list(range(25))
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 25)
    stored = stored_about(instance, result.run_id)
    assert "CANARY" not in stored
    assert url not in stored


def test_an_empty_or_paused_queue_starts_no_process_and_materializes_nothing(
    queue: RedisMessageQueue, job: Job, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    empty = job().execute_in_process(instance=instance)
    queue.publish({"n": 1})
    queue.pause()
    paused = job().execute_in_process(instance=instance)

    for result, why in ((empty, "has no ready message"), (paused, "is paused")):
        assert result.success
        assert result.asset_materializations_for_node("stored") == []
        assert f"Queue {queue.name!r} {why}; no process is started." in stored_about(instance, result.run_id)
    assert not (tmp_path / "extras").exists()


def test_a_re_execution_that_finds_nothing_new_counts_what_its_run_did(
    queue: RedisMessageQueue, job: Job, instance: dg.DagsterInstance
) -> None:
    queue.publish_many({"n": n} for n in range(5))
    first = job().execute_in_process(instance=instance)

    again = re_execute(job(), instance, first.run_id)

    assert materialized(instance, again.run_id)["dagster/row_count"] == 5
    assert queue.stats().acked == 5


def test_the_retry_of_a_killed_process_takes_its_lease_over(
    queue: RedisMessageQueue, job: Job, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many({"n": n, "kills": n == 15} for n in range(25))

    result = job(retry_policy=dg.RetryPolicy(max_retries=1)).execute_in_process(instance=instance)

    found = materialized(instance, result.run_id)
    assert (found["sluicegate/acked"], found["sluicegate/taken_over"]) == (25, 1)
    assert numbers_in(tmp_path) == list(range(25))
    assert queue.stats().acked == 25


def test_messages_that_fail_fail_the_step_and_a_re_execution_works_on_them(
    queue: RedisMessageQueue, job: Job, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    queue.publish_many({"n": n, "fails": n == 17, "note": "CANARY"} for n in range(25))

    first = job().execute_in_process(instance=instance, raise_on_error=False)

    assert not first.success
    stored = stored_about(instance, first.run_id)
    assert "the handler failed on 1 of 25 messages" in stored
    (message,) = [*queue.peek(state="delayed"), *queue.peek(state="pending"), *queue.peek(state="returned")]
    assert message.id in stored
    assert "CANARY" not in stored
    assert "TEXT" not in stored
    assert "EVENT_ASSET_MATERIALIZATION" not in stored

    (tmp_path / "mended").touch()
    wait_until(lambda: queue.depth().ready == 1, "the message is due")
    again = re_execute(job(), instance, first.run_id)

    assert materialized(instance, again.run_id)["dagster/row_count"] == 25
    assert numbers_in(tmp_path) == list(range(25))


class Context:
    """What `open_dagster_pipes()` returns, with extras of the test."""

    log = logging.getLogger("pipes")

    def __init__(self, extras: Mapping[str, Any]) -> None:
        self.extras = extras

    def report_asset_materialization(self, metadata: Mapping[str, Any] | None = None) -> None:
        raise AssertionError("nothing was drained")


@pytest.mark.parametrize("extras", [{}, {"sluicegate/run_id": ""}, {"sluicegate/run_id": 7}])
def test_a_process_without_the_id_of_its_run_claims_nothing(queue: RedisMessageQueue, extras: dict[str, Any]) -> None:
    queue.publish({"n": 1})

    with pytest.raises(ConfigurationError, match=r"must pass extras=queue_pipes_extras\(context\)"):
        report_drain(Context(extras), queue, lambda run_id: drain(queue, print, run_id=run_id))

    assert queue.depth().ready == 1


def test_the_id_is_that_of_the_root_run_the_asset_and_the_partition(instance: dg.DagsterInstance) -> None:
    sent: list[str] = []
    groups = dg.StaticPartitionsDefinition(["eu", "us"])

    @dg.asset(key=["shop", "orders"], partitions_def=groups)
    def orders(context: dg.AssetExecutionContext) -> None:
        sent.append(run_id_of(Context(queue_pipes_extras(context))))

    result = dg.materialize([orders], partition_key="eu", instance=instance)

    assert sent == [f"{result.run_id}:shop/orders:eu"]


def test_a_step_of_several_assets_is_refused() -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("a"), dg.AssetSpec("b")])
    def both(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield queue_pipes_extras(context)

    with pytest.raises(ConfigurationError, match=r"this step makes a, b; give each queue a step of its own"):
        dg.materialize([both])
