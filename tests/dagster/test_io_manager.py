"""The IO manager that publishes: each item once, whatever stopped the try before, and never an input."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from dagster_sluicegate import QueuePublishIOManager, RedisQueueResource
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.helpers import asset_job, re_execute, resource_snapshot
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster


def published_by(made: Callable[[], Any], **options: Any) -> dg.AssetsDefinition:
    @dg.asset(io_manager_key="to_queue", **options)
    def orders():  # type: ignore[no-untyped-def]
        return made()

    return orders


def job_of(asset: dg.AssetsDefinition, resource: RedisQueueResource, *others: Any, **options: Any) -> dg.JobDefinition:
    to_queue = QueuePublishIOManager(queue=resource, **{"batch_size": 10, **options})
    return asset_job([asset, *others], {"to_queue": to_queue})


def failure_of(result: dg.ExecuteInProcessResult, node: str = "orders") -> str:
    assert not result.success
    return result.failure_data_for_node(node).error.to_string()  # type: ignore[union-attr]


def held(queue: RedisMessageQueue) -> list[Any]:
    return [message.json() for message in queue.peek(1000)]


NUMBERS = [{"n": number} for number in range(25)]


class Streamed:
    """An iterable that fails in the middle of its first reading."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __iter__(self) -> Iterator[Any]:
        for number in range(25):
            if number == 15 and self.error is not None:
                error, self.error = self.error, None
                raise error
            yield {"n": number}


@pytest.mark.parametrize(
    "made",
    [
        NUMBERS,
        tuple(NUMBERS),
        Streamed(),
        map(dict, NUMBERS),
        dg.Output(number for number in NUMBERS),
        pd.DataFrame(NUMBERS),
        pa.Table.from_pylist(NUMBERS),
    ],
    ids=["list", "tuple", "iterable", "iterator", "generator in an output", "pandas", "arrow"],
)
def test_each_item_is_a_message_and_the_metadata_counts(
    queue: RedisMessageQueue, resource: RedisQueueResource, made: Any
) -> None:
    result = job_of(published_by(lambda: made), resource).execute_in_process()
    assert held(queue) == NUMBERS
    (materialization,) = result.asset_materializations_for_node("orders")
    metadata = {name: value.value for name, value in materialization.metadata.items()}
    assert metadata["dagster/row_count"] == metadata["sluicegate/accepted"] == 25
    assert (metadata["sluicegate/queue"], metadata["sluicegate/batches"]) == (queue.name, 3)


def test_a_retry_publishes_only_what_is_missing(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    streamed = Streamed(OSError("the source is away"))
    asset = published_by(lambda: streamed, retry_policy=dg.RetryPolicy(max_retries=1))
    result = job_of(asset, resource).execute_in_process()
    (materialization,) = result.asset_materializations_for_node("orders")
    assert materialization.metadata["sluicegate/accepted_before"].value == 10
    assert held(queue) == NUMBERS


def test_a_run_that_is_killed_midway_is_completed_by_its_re_execution(
    queue: RedisMessageQueue, resource: RedisQueueResource, tmp_path: Path
) -> None:
    def items() -> Iterator[Any]:
        for item in NUMBERS:
            if item["n"] == 15 and os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            yield item

    def execute() -> None:
        with dg.DagsterInstance.local_temp(str(tmp_path)) as theirs:
            job.execute_in_process(instance=theirs)

    parent = os.getpid()
    job = job_of(published_by(lambda: dg.Output(items())), resource)
    process = multiprocessing.get_context("fork").Process(target=execute)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert queue.depth().ready == 10
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        (killed,) = instance.get_runs()
        for _ in range(2):
            assert re_execute(job, instance, killed.run_id).is_success
    assert held(queue) == NUMBERS


def test_outputs_mapping_keys_and_partitions_do_not_refuse_each_others_messages(
    queue: RedisMessageQueue, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> None:
    @dg.op(out={name: dg.Out(io_manager_key="to_queue") for name in ("a", "b")})
    def two():  # type: ignore[no-untyped-def]
        yield dg.Output([[1]], "a")
        yield dg.Output([[2]], "b")

    @dg.op(out=dg.DynamicOut(io_manager_key="to_queue"))
    def mapped():  # type: ignore[no-untyped-def]
        yield dg.DynamicOutput([[3]], mapping_key="x")
        yield dg.DynamicOutput([[4]], mapping_key="y")

    @dg.job(
        resource_defs={"to_queue": QueuePublishIOManager(queue=resource)},
        executor_def=dg.in_process_executor,
        partitions_def=dg.StaticPartitionsDefinition(["acme", "initech"]),
    )
    def job() -> None:
        two()
        two.alias("more")()
        mapped()

    first = job.execute_in_process(instance=instance, partition_key="acme")
    assert sorted(held(queue)) == [[1], [1], [2], [2], [3], [4]]
    for partition, ready in (("initech", 12), ("acme", 12)):
        assert re_execute(job, instance, first.run_id, tags={"dagster/partition": partition}).is_success
        assert queue.depth().ready == ready


def test_a_key_of_the_message_is_used_instead_of_its_position(url: str, queue: RedisMessageQueue) -> None:
    keyed = RedisQueueResource(url=url, queue_name=queue.name, deduplication_key="n")
    job = job_of(published_by(lambda: NUMBERS), keyed)
    for _ in range(2):
        assert job.execute_in_process().success
    assert queue.depth().ready == 25


def test_another_queue_of_the_server(url: str, queue: RedisMessageQueue) -> None:
    elsewhere = RedisQueueResource(url=url)
    assert job_of(published_by(lambda: NUMBERS), elsewhere, queue_name=queue.name).execute_in_process().success
    assert queue.depth().ready == 25


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (None, "the output of orders must be an iterable of messages, .* not None"),
        ({"n": 1}, r"not a dict \(wrap a single message in a list\)"),
        ("text", "not a str"),
        (b"bytes", "not a bytes"),
        (7, "not a int"),
        ([{"n": 1}, {3}], "message 2: payload is a set"),
    ],
)
def test_what_is_no_iterable_of_messages_is_refused_without_a_retry(
    queue: RedisMessageQueue, resource: RedisQueueResource, made: Any, error: str
) -> None:
    tries: list[int] = []

    def produce() -> Any:
        tries.append(1)
        return made

    asset = published_by(produce, retry_policy=dg.RetryPolicy(max_retries=3))
    result = job_of(asset, resource).execute_in_process(raise_on_error=False)
    assert re.search(error, failure_of(result))
    assert (len(tries), queue.depth().ready) == (1, 0)


def test_an_input_is_refused_with_the_name_of_what_to_use(resource: RedisQueueResource) -> None:
    @dg.asset
    def loaded(orders: Any) -> None: ...

    job = job_of(published_by(lambda: NUMBERS), resource, loaded)
    text = failure_of(job.execute_in_process(raise_on_error=False), "loaded")
    assert "the messages of orders are in a queue, and an IO manager cannot claim and ack them" in text
    assert "build_queue_drain_asset(spec=..., process=...)" in text


def test_redis_away_names_the_server_and_allows_a_retry() -> None:
    away = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders", retry_budget_seconds=0)
    tries = itertools.count()

    def produce() -> list[Any]:
        next(tries)
        return NUMBERS

    asset = published_by(produce, retry_policy=dg.RetryPolicy(max_retries=1))
    assert "127.0.0.1" in failure_of(job_of(asset, away).execute_in_process(raise_on_error=False))
    assert next(tries) == 2


def test_a_password_is_refused_as_text_and_works_by_variable(
    url: str, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = RedisQueueResource(url="redis://:s3cr3t@localhost:6379/0", queue_name="orders")
    with pytest.raises(ConfigurationError, match="plain text") as caught:
        dg.Definitions(resources={"to_queue": QueuePublishIOManager(queue=plain)}).get_repository_def()
    assert "s3cr3t" not in str(caught.value)
    monkeypatch.setenv("REDIS_URL", url)
    resource = RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name=queue.name)
    to_queue = QueuePublishIOManager(queue=resource)
    defs = dg.Definitions(assets=[published_by(lambda: NUMBERS)], resources={"to_queue": to_queue, "queue": resource})
    assert url not in repr(resource_snapshot(defs, "to_queue"))
    assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert queue.depth().ready == 25


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, "batch_size must be an int from 1 to 1000"),
        ({"retry_window_seconds": -1.0}, "retry_window_seconds must be a number above 0"),
        ({"batchsize": 3}, "'batchsize'; did you mean batch_size"),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_definitions_load(
    resource: RedisQueueResource, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        dg.Definitions(resources={"io": QueuePublishIOManager(queue=resource, **options)}).get_repository_def()


def test_the_documented_io_manager_works(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(snippet("dagster-io-manager"), "dagster-io-manager", "exec"), names)  # noqa: S102
    defs: dg.Definitions = names["defs"]
    assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert RedisQueueResource(url=url).get_depth("returned orders").ready == 100
