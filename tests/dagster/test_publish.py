"""The publish asset: a retry and a re-execution publish only what is missing, whatever stopped the try before."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
import redis

from dagster_sluicegate import RedisQueueResource, build_queue_publish_asset
from sluicegate import Message, RedisMessageQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import asset_job, re_execute
from tests.support import markers
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster


def numbers(count: int = 25) -> Callable[[], Iterator[dict[str, int]]]:
    def produce() -> Iterator[dict[str, int]]:
        yield from ({"n": number} for number in range(count))

    return produce


def nothing() -> list[int]:
    return []


def publish_asset(produce: Callable[..., Any], **options: Any) -> dg.AssetsDefinition:
    return build_queue_publish_asset(spec="published", produce=produce, **{"batch_size": 10, **options})


def run(
    asset: dg.AssetsDefinition, resource: RedisQueueResource, *others: dg.AssetsDefinition, **options: Any
) -> dg.ExecuteInProcessResult:
    job = asset_job([asset, *others], {"queue": resource, "io_manager": dg.mem_io_manager})
    return job.execute_in_process(raise_on_error=False, **options)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert result.success
    (materialization,) = result.asset_materializations_for_node("published")
    return {name: value.value for name, value in materialization.metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    return result.failure_data_for_node("published").error.to_string()  # type: ignore[union-attr]


def held(queue: RedisMessageQueue) -> list[Any]:
    """Return the payloads that wait in the queue, in order."""
    messages: list[Message] = queue.peek(1000)
    return [message.json() for message in messages]


# ---------------------------------------------------------------------------------------------------- the good way


def test_it_publishes_what_a_generator_yields_and_counts(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    metadata = metadata_of(run(publish_asset(numbers(), headers={"kind": "order"}), resource))
    ids = [message.id for message in queue.peek(100)]
    size = metadata["sluicegate/bytes"]
    assert 25 * 50 < size < 25 * 150  # the payload, the header and the key of each
    assert metadata == {
        "dagster/row_count": 25,
        "sluicegate/queue": queue.name,
        "sluicegate/accepted": 25,
        "sluicegate/accepted_before": 0,
        "sluicegate/duplicates": 0,
        "sluicegate/batches": 3,
        "sluicegate/bytes": size,
        "sluicegate/first_message_id": ids[0],
        "sluicegate/last_message_id": ids[-1],
        "sluicegate/ready": 25,
    }
    assert held(queue) == [{"n": number} for number in range(25)]
    assert queue.peek(1)[0].headers == {"kind": "order"}


def test_the_documented_publish_works(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(snippet("dagster-publish"), "dagster-publish", "exec"), names)  # noqa: S102
    defs: dg.Definitions = names["defs"]
    job = defs.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(partition_key="2026-01-02").success
    assert RedisQueueResource(url=url).get_depth("documented orders").ready == 100


def test_every_run_publishes_its_own_messages(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    asset = publish_asset(numbers(3))
    for _ in range(2):
        assert metadata_of(run(asset, resource))["sluicegate/accepted"] == 3
    assert queue.depth().ready == 6


def test_nothing_to_publish_is_counted_as_nothing(resource: RedisQueueResource) -> None:
    metadata = metadata_of(run(publish_asset(nothing), resource))
    assert (metadata["dagster/row_count"], metadata["sluicegate/batches"]) == (0, 0)
    assert "sluicegate/first_message_id" not in metadata


def test_a_delay_and_another_queue(resource: RedisQueueResource, queue: RedisMessageQueue) -> None:
    other = RedisQueueResource(url=resource.url)
    run(publish_asset(numbers(3), delay_seconds=600, queue_name=queue.name), other)
    assert (queue.depth().delayed, queue.depth().ready) == (3, 0)
    due = datetime.now(UTC) + timedelta(hours=1)
    run(publish_asset(numbers(3), due_at=due, durability="memory"), resource)
    assert queue.depth().delayed == 6


class Shop(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource that the function reads."""

    tenant: str


class Limits(dg.Config):
    """The config of a run."""

    count: int = 2


def test_the_function_takes_config_resources_and_upstream_assets(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    @dg.asset
    def prices() -> list[int]:
        return [5, 6, 7]

    def produce(context, config: Limits, prices: list[int], shop: Shop, queue: RedisQueueResource):  # type: ignore[no-untyped-def]
        for price in prices[: config.count]:
            yield {"tenant": shop.tenant, "price": price, "queue": queue.queue_name, "run": context.run.run_id}

    asset = publish_asset(produce)
    job = asset_job([asset, prices], {"queue": resource, "shop": Shop(tenant="acme"), "io_manager": dg.mem_io_manager})
    result = job.execute_in_process(run_config={"ops": {"published": {"config": {"count": 1}}}})
    assert held(queue) == [{"tenant": "acme", "price": 5, "queue": queue.name, "run": result.run_id}]
    assert asset.asset_deps[dg.AssetKey("published")] == {dg.AssetKey("prices")}


def test_an_upstream_asset_may_have_a_key_of_several_parts(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    @dg.asset(key=["raw", "prices"])
    def raw_prices() -> list[int]:
        return [5]

    spec = dg.AssetSpec("published", deps=[["raw", "prices"], "others"])
    asset = build_queue_publish_asset(spec=spec, produce=lambda prices: [{"price": price} for price in prices])
    assert asset.asset_deps[dg.AssetKey("published")] == {dg.AssetKey(["raw", "prices"]), dg.AssetKey("others")}
    assert run(asset, resource, raw_prices).success
    assert held(queue) == [{"price": 5}]


def test_the_description_names_the_queue() -> None:
    def produce() -> list[int]:
        """Return the orders of today."""
        return []

    assert publish_asset(produce).specs_by_key[dg.AssetKey("published")].description == (
        "Return the orders of today.\n\nPublishes messages to the queue of the resource `queue`."
    )
    (spec,) = publish_asset(nothing, queue_name="orders").specs
    assert (spec.description, spec.kinds) == ("Publishes messages to the queue `orders`.", {"redis"})


def test_it_can_be_called_directly(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    def produce(shop: Shop) -> list[dict[str, str]]:
        return [{"tenant": shop.tenant}]

    asset = publish_asset(produce)
    for _ in range(2):
        result = asset(dg.build_asset_context(), shop=Shop(tenant="acme"), queue=resource)
        assert isinstance(result, dg.MaterializeResult)
        assert (result.metadata or {})["sluicegate/accepted"] == 1
    assert held(queue) == [{"tenant": "acme"}] * 2


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"n": [1, 2], "at": [None, "x"], "x": [0.5, float("nan")]}),
        pa.table({"n": [1, 2], "at": [None, "x"], "x": [0.5, None]}),
        pa.record_batch({"n": [1, 2], "at": [None, "x"], "x": [0.5, None]}),
    ],
    ids=["pandas", "arrow table", "arrow batch"],
)
def test_the_rows_of_a_table_are_messages(queue: RedisMessageQueue, resource: RedisQueueResource, table: Any) -> None:
    rows = [{"n": 1, "at": None, "x": 0.5}, {"n": 2, "at": "x", "x": None}]
    run(publish_asset(lambda: table), resource)
    assert held(queue) == rows
    run(publish_asset(lambda: iter([table, {"n": 3}, table])), resource)
    assert held(queue) == [*rows, *rows, {"n": 3}, *rows]


def test_a_stream_of_arrow_batches_and_a_long_frame(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    table = pa.table({"n": range(2500)})
    run(
        publish_asset(lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), batch_size=1000),
        resource,
    )
    run(publish_asset(lambda: pd.DataFrame({"n": range(2500)}), batch_size=1000), resource)
    assert queue.depth().ready == 5000


def test_the_results_of_checks_are_no_messages(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    def produce() -> Iterator[Any]:
        yield {"n": 1}
        yield dg.AssetCheckResult(passed=False, check_name="complete", severity=dg.AssetCheckSeverity.WARN)
        yield {"n": 2}

    asset = publish_asset(produce, check_specs=[dg.AssetCheckSpec("complete", asset="published")])
    result = run(asset, resource)
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed) == ("complete", False)
    assert held(queue) == [{"n": 1}, {"n": 2}]


def test_a_paused_queue_takes_messages_with_a_warning(
    queue: RedisMessageQueue, resource: RedisQueueResource, capfd: pytest.CaptureFixture[str]
) -> None:
    queue.pause()
    assert metadata_of(run(publish_asset(numbers(3)), resource))["sluicegate/accepted"] == 3
    assert "is paused" in capfd.readouterr().err


def test_the_log_counts_and_shows_no_payload(resource: RedisQueueResource, capfd: pytest.CaptureFixture[str]) -> None:
    run(publish_asset(lambda: [{"note": "CANARY"}] * 12), resource)
    captured = capfd.readouterr()
    assert "done: 12 published, 0 duplicates refused, 0 dropped, in 2 batches" in captured.err
    assert "CANARY" not in captured.err + captured.out


# ---------------------------------------------------------------------------------------------------- retries


def failing_once(at: int, error: BaseException | None = None) -> Callable[[], Iterator[dict[str, int]]]:
    """Return a generator function that raises in the middle of its first call."""
    tries: list[int] = []

    def produce() -> Iterator[dict[str, int]]:
        tries.append(1)
        for number in range(25):
            if number == at and len(tries) == 1:
                raise error or OSError("the source is away")
            yield {"n": number}

    return produce


def test_a_retry_publishes_only_what_is_missing(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    asset = publish_asset(failing_once(15), retry_policy=dg.RetryPolicy(max_retries=1))
    metadata = metadata_of(run(asset, resource))
    assert (metadata["sluicegate/accepted"], metadata["sluicegate/accepted_before"]) == (15, 10)
    assert (metadata["dagster/row_count"], metadata["sluicegate/duplicates"]) == (25, 0)
    assert held(queue) == [{"n": number} for number in range(25)]


def test_a_re_execution_of_the_run_publishes_only_what_is_missing(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    job = asset_job([publish_asset(failing_once(15))], {"queue": resource})
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    text = failure_of(failed)
    assert "reading stopped after message 15: the source is away; the 1 batches before it stay published" in text
    assert "a retry is safe: messages that were published are refused as duplicates for 86400 s" in text
    assert queue.depth().ready == 10
    for _ in range(2):  # the second finds everything done
        assert re_execute(job, instance, failed.run_id).is_success
    assert held(queue) == [{"n": number} for number in range(25)]


def test_messages_that_were_drained_meanwhile_are_not_published_again(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    job = asset_job([publish_asset(failing_once(15))], {"queue": resource})
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    with queue.claim(100) as lease:
        assert len(lease) == 10
    assert re_execute(job, instance, failed.run_id).is_success
    assert held(queue) == [{"n": number} for number in range(10, 25)]


def test_a_run_that_is_killed_midway_is_completed_by_its_re_execution(
    queue: RedisMessageQueue, resource: RedisQueueResource, tmp_path: Path
) -> None:
    def produce() -> Iterator[dict[str, int]]:
        for number in range(25):
            if number == 15 and os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            yield {"n": number}

    def execute() -> None:
        with dg.DagsterInstance.local_temp(str(tmp_path)) as theirs:
            job.execute_in_process(instance=theirs)

    parent = os.getpid()
    job = asset_job([publish_asset(produce)], {"queue": resource})
    process = multiprocessing.get_context("fork").Process(target=execute)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert queue.depth().ready == 10
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        (killed,) = instance.get_runs()
        assert killed.status is dg.DagsterRunStatus.STARTED
        assert re_execute(job, instance, killed.run_id).is_success
    assert held(queue) == [{"n": number} for number in range(25)]


def test_a_position_is_remembered_for_the_retry_window(
    queue: RedisMessageQueue, resource: RedisQueueResource, client: redis.Redis
) -> None:
    run(publish_asset(numbers(1), retry_window_seconds=7200), resource)
    (key,) = markers.held(client, QueueKeys(queue.name))
    assert markers.left_ms(client, QueueKeys(queue.name), key) / 1000 == pytest.approx(7200, abs=60)


def test_a_key_of_the_message_is_used_instead_of_its_position(url: str, queue: RedisMessageQueue) -> None:
    keyed = RedisQueueResource(url=url, queue_name=queue.name, deduplication_key="n")
    for accepted, duplicates in ((25, 0), (0, 25)):  # of another run
        metadata = metadata_of(run(publish_asset(numbers()), keyed))
        counts = [metadata[f"sluicegate/{name}"] for name in ("accepted", "accepted_before", "duplicates")]
        assert counts == [accepted, 0, duplicates]
    plain = RedisQueueResource(url=url, queue_name=queue.name)
    asset = publish_asset(numbers(30), deduplication_key=lambda payload: str(payload["n"]))
    assert metadata_of(run(asset, plain))["sluicegate/accepted"] == 5


def test_partitions_and_assets_do_not_refuse_each_others_messages(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    def produce(context):  # type: ignore[no-untyped-def]
        return [{"tenant": context.partition_key}]

    partitions = dg.StaticPartitionsDefinition(["acme", "initech"])
    other = build_queue_publish_asset(spec="others", produce=produce, partitions_def=partitions)
    job = asset_job([publish_asset(produce, partitions_def=partitions), other], {"queue": resource})
    first = job.execute_in_process(instance=instance, partition_key="acme")
    assert re_execute(job, instance, first.run_id, tags={"dagster/partition": "initech"}).is_success
    assert re_execute(job, instance, first.run_id, tags={"dagster/partition": "acme"}).is_success
    assert sorted(message["tenant"] for message in held(queue)) == ["acme"] * 2 + ["initech"] * 2


# ---------------------------------------------------------------------------------------------------- failures


def test_a_full_queue_fails_the_step_and_a_retry_continues(
    url: str, queue: RedisMessageQueue, instance: dg.DagsterInstance
) -> None:
    small = RedisQueueResource(url=url, queue_name=queue.name, max_pending_length=20)
    job = asset_job([publish_asset(numbers())], {"queue": small})
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    assert "max_pending_length" in failure_of(failed)
    assert "the 2 batches before it stay published: 20 messages" in failure_of(failed)
    with queue.claim(100) as lease:
        assert len(lease) == 20
    assert re_execute(job, instance, failed.run_id).is_success
    assert held(queue) == [{"n": number} for number in range(20, 25)]


def test_a_payload_that_cannot_be_stored_fails_without_a_retry(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    tries: list[int] = []

    def produce() -> Iterator[Any]:
        tries.append(1)
        yield from [{"n": 1}] * 13
        yield {"n": {3}}

    result = run(publish_asset(produce, retry_policy=dg.RetryPolicy(max_retries=3)), resource)
    assert "message 14: " in failure_of(result)
    assert "$.n" in failure_of(result)
    assert (len(tries), queue.depth().ready) == (1, 10)


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (None, "the result of produce must be an iterable of messages, .*not None"),
        ({"n": 1}, r"not a dict \(wrap a single message in a list\)"),
        ("text", "not a str"),
        (7, "not a int"),
        (dg.MaterializeResult(), "holds a MaterializeResult, which is no message"),
        ([dg.Output(1)], "holds a Output, which is no message"),
    ],
)
def test_what_is_no_iterable_of_messages_is_refused_without_a_retry(
    resource: RedisQueueResource, made: Any, error: str
) -> None:
    tries: list[int] = []

    def produce() -> Any:
        tries.append(1)
        return made

    result = run(publish_asset(produce, retry_policy=dg.RetryPolicy(max_retries=3)), resource)
    assert re.search(error, failure_of(result))
    assert len(tries) == 1


def test_a_request_of_the_function_to_dagster_stays_what_it_is(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    asset = publish_asset(failing_once(15, dg.RetryRequested(max_retries=1)))
    assert metadata_of(run(asset, resource))["sluicegate/accepted_before"] == 10
    asset = publish_asset(failing_once(15, dg.Failure("no more orders today")))
    assert "no more orders today" in failure_of(run(asset, resource))


def test_redis_stops_in_the_middle_and_a_re_execution_publishes_the_rest(instance: dg.DagsterInstance) -> None:
    def produce() -> Iterator[dict[str, int]]:
        for number in range(25):
            if number == 15:
                server.stop()
            yield {"n": number}

    server = RedisServer(PROGRAMS[0], "--appendonly", "yes", "--appendfsync", "always")
    try:
        server.start()
        resource = RedisQueueResource(url=server.url, queue_name="orders", retry_budget_seconds=0.2)
        job = asset_job([publish_asset(produce)], {"queue": resource})
        failed = job.execute_in_process(instance=instance, raise_on_error=False)
        assert "the 1 batches before it stay published: 10 messages" in failure_of(failed)
        server.start()
        job = asset_job([publish_asset(numbers())], {"queue": resource})
        assert re_execute(job, instance, failed.run_id).is_success
        with resource.get_queue() as queue:
            assert held(queue) == [{"n": number} for number in range(25)]
    finally:
        server.remove()


def test_redis_away_names_the_server_and_allows_a_retry() -> None:
    away = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders", retry_budget_seconds=0)
    tries: list[int] = []

    def produce() -> list[dict[str, int]]:
        tries.append(1)
        return [{"n": 1}]

    result = run(publish_asset(produce, retry_policy=dg.RetryPolicy(max_retries=1)), away)
    assert "127.0.0.1" in failure_of(result)
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, "batch_size must be an int from 1 to 1000"),
        ({"retry_window_seconds": 0}, "retry_window_seconds must be a number above 0"),
        ({"deduplication_key": "{n"}, "unpaired"),
        ({"headers": {"a": 1}}, "header"),
        ({"delay_seconds": -1}, "delay_seconds"),
        ({"due_at": datetime(2026, 1, 1)}, "naive datetime"),  # noqa: DTZ001
        ({"durability": "disk"}, "durability"),
        ({"resource_key": "my queue"}, "resource_key must be a Python identifier"),
        ({"produce": [1, 2]}, "produce must be a function"),
        ({"produce": lambda *rest: []}, r"produce has the parameter '\*rest'"),
        ({"produce": lambda **rest: []}, r"produce has the parameter '\*\*rest'"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_build_time(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=f"publish asset 'published': .*{error}"):
        build_queue_publish_asset(**{"spec": "published", "produce": numbers(), **options})


def test_an_async_function_is_refused_at_build_time() -> None:
    async def produce() -> list[int]:
        return []

    with pytest.raises(ConfigurationError, match="publish asset 'published': produce is async"):
        publish_asset(produce)
