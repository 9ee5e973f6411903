"""The other forms of a drain: a decorator, several assets, an op and a job; each continues what a dead try began."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import (
    QueueDrain,
    QueueDrainContext,
    RedisQueueResource,
    build_queue_drain_assets,
    build_queue_drain_job,
    build_queue_drain_op,
    queue_drain_asset,
)
from sluicegate import Depth, Message, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.dagster.drains import Storage, drain_asset, fill, numbers
from tests.dagster.helpers import asset_job, re_execute
from tests.support.servers import PROGRAMS, RedisServer

pytestmark = pytest.mark.dagster

Process = Callable[..., Any]
MakeJob = Callable[..., dg.JobDefinition]


def _asset(process: Process, resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    return asset_job([drain_asset(process, **options)], resources)


def _decorated(process: Process, resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    return asset_job([queue_drain_asset(spec="drained", **options)(process)], resources)


def _assets(process: Process, resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    return asset_job(
        build_queue_drain_assets(drains=[QueueDrain(spec="drained")], process=process, **options), resources
    )


def _op(process: Process, resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    op = build_queue_drain_op(name="drained", process=process, **options)

    @dg.job(resource_defs=resources, executor_def=dg.in_process_executor)
    def drain_job() -> None:
        op()

    return drain_job


def _job(process: Process, resources: dict[str, Any], **options: Any) -> dg.JobDefinition:
    job = build_queue_drain_job(name="drained", process=process, executor_def=dg.in_process_executor, **options)
    return dg.Definitions(jobs=[job], resources=resources).resolve_job_def("drained")


FORMS = pytest.mark.parametrize(
    ("make_job", "step"),
    [(_asset, "drained"), (_decorated, "drained"), (_assets, "drained"), (_op, "drained"), (_job, "drained_op")],
)


@FORMS
def test_every_form_settles_after_its_result_was_stored(
    queue: RedisMessageQueue, resource: RedisQueueResource, make_job: MakeJob, step: str
) -> None:
    seen: list[Depth] = []
    storage = Storage(lambda: seen.append(queue.depth()))
    fill(queue, 3)
    result = make_job(numbers, {"queue": resource, "io_manager": storage}, batch_size=2).execute_in_process()

    assert storage.stored == [[[0, 1], [2]]]
    assert seen[0].in_flight == 3
    assert (queue.depth().in_flight, queue.stats().acked) == (0, 3)
    assert result.is_node_success(step)


@FORMS
def test_every_form_gives_its_messages_back_when_the_result_cannot_be_stored(
    queue: RedisMessageQueue, resource: RedisQueueResource, make_job: MakeJob, step: str
) -> None:
    def full() -> None:
        raise OSError("disk full")

    fill(queue, 3)
    job = make_job(numbers, {"queue": resource, "io_manager": Storage(full)}, batch_size=2)
    assert not job.execute_in_process(raise_on_error=False).success
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, queue.stats().acked) == (3, 0, 0)


@FORMS
def test_a_retry_of_the_step_continues_with_the_batches_of_its_first_try(
    queue: RedisMessageQueue, resource: RedisQueueResource, make_job: MakeJob, step: str
) -> None:
    """The first batch is acked; the second fails in the first try, and only it is repeated."""
    tries: list[tuple[int, list[int]]] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        tries.append((ctx.attempt, numbers(messages)))
        if ctx.attempt == 0 and ctx.chunk == 1:
            raise ConnectionError("the warehouse is away")

    fill(queue, 2)
    job = make_job(
        process,
        {"queue": resource, "io_manager": Storage()},
        batch_size=1,
        settle="per_batch",
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    assert job.execute_in_process().success
    assert tries == [(0, [0]), (0, [1]), (1, [1])]
    assert (queue.depth().in_flight, queue.stats().acked) == (0, 2)


@FORMS
def test_a_re_executed_run_takes_over_the_batch_of_a_killed_worker(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    make_job: MakeJob,
    step: str,
) -> None:
    fill(queue, 5)
    root = dg.DagsterRun(job_name="drain_job").run_id
    dead = queue.claim(3, lease_id=f"{root}:{step}/0/0")  # its worker was killed, and the lease has not expired
    handled: list[tuple[bool, list[int]]] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        handled.append((ctx.lease_key == dead.key, numbers(messages)))

    job = make_job(process, {"queue": resource, "io_manager": Storage()})
    assert re_execute(job, instance, root).is_success
    assert handled == [(True, [0, 1, 2]), (False, [3, 4])]
    assert re_execute(job, instance, root).is_success
    assert (len(handled), queue.depth().in_flight, queue.stats().acked) == (2, 0, 5)


# ---------------------------------------------------------------------------------------------------- the decorator


def test_the_decorator_takes_key_and_description_from_the_function(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    @queue_drain_asset(batch_size=2, queue_asset=["queues", "orders"])
    def orders(messages: list[Message]) -> list[int]:
        """Return the numbers of the orders."""
        return numbers(messages)

    (spec,) = orders.specs
    assert (spec.key, spec.description, spec.kinds) == (
        dg.AssetKey("orders"),
        "Return the numbers of the orders.",
        {"redis"},
    )
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["queues", "orders"])]
    fill(queue, 3)
    (result,) = orders(dg.build_asset_context(), queue=resource)  # type: ignore[misc]
    assert result.value == [[0, 1], [2]]


# ---------------------------------------------------------------------------------------------------- several assets


def test_several_queues_become_assets_that_do_not_stop_each_other(
    queue: RedisMessageQueue, resource: RedisQueueResource, url: str
) -> None:
    other = RedisMessageQueue(f"{queue.name} refunds", url=url)
    written: list[tuple[str, list[int]]] = []

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        name = ctx.asset.asset_key.to_user_string()
        if name == "refunds":
            raise ValueError("no such customer")
        written.append((name, numbers(messages)))

    assets = build_queue_drain_assets(
        drains=[
            QueueDrain(spec="refunds", queue_name=other.name),
            QueueDrain(spec="orders", queue_asset="orders_queue"),
            QueueDrain(spec="returns", resource_key="elsewhere", process=lambda messages: written.append(("own", []))),
        ],
        process=process,
        settle="per_batch",
    )
    elsewhere = RedisQueueResource(url=url, queue_name=f"{queue.name} returns")
    fill(queue, 2)
    fill(other, 1)
    with elsewhere.get_queue() as returns:
        returns.publish("x")
        resources = {"queue": resource, "elsewhere": elsewhere, "io_manager": Storage()}
        result = asset_job(assets, resources).execute_in_process(raise_on_error=False)
        assert returns.stats().acked == 1

    assert not result.success
    assert sorted(written) == [("orders", [0, 1]), ("own", [])]
    assert (queue.stats().acked, other.stats().acked) == (2, 0)
    assert [asset.key.to_user_string() for asset in assets] == ["refunds", "orders", "returns"]
    assert [dep.asset_key for dep in next(iter(assets[1].specs)).deps] == [dg.AssetKey("orders_queue")]
    assert f"the queue `{other.name}` of the resource `queue`" in (next(iter(assets[0].specs)).description or "")


@pytest.mark.parametrize(
    ("drains", "complaint"),
    [
        ([], "drains is empty; name a QueueDrain for each queue"),
        (
            [QueueDrain(spec="a"), QueueDrain(spec="a", queue_name="b")],
            "two drains have the key 'a'; give each its own",
        ),
        ([QueueDrain(spec="a", queue_name=" ")], "drain asset 'a': queue_name: queue name is blank"),
    ],
)
def test_drains_that_cannot_be_told_apart_are_refused(drains: list[QueueDrain], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        build_queue_drain_assets(drains=drains, process=len)


def test_a_drain_without_a_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the drain 'a' has no process; give one to it, or to the call"):
        build_queue_drain_assets(drains=[QueueDrain(spec="a")])


# ---------------------------------------------------------------------------------------------------- op and job


def test_an_op_hands_its_value_to_the_next_and_skips_it_when_there_is_none(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    got: list[Any] = []
    drain_orders = build_queue_drain_op(
        name="drain_orders", process=numbers, combine=lambda parts: sum(map(sum, parts))
    )

    @dg.op
    def report(total: int) -> None:
        got.append(total)

    @dg.job(resource_defs={"queue": resource, "io_manager": Storage()}, executor_def=dg.in_process_executor)
    def orders() -> None:
        report(drain_orders())

    fill(queue, 4)
    full, empty = orders.execute_in_process(), orders.execute_in_process()

    assert got == [6]
    assert [event.step_key for event in empty.all_events if event.is_step_skipped] == ["report"]
    (output,) = [event for event in full.events_for_node("drain_orders") if event.is_successful_output]
    assert output.step_output_data.metadata["sluicegate/acked"].value == 4


def test_two_uses_of_an_op_in_one_graph_have_leases_of_their_own(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    leases: list[str] = []
    drain_orders = build_queue_drain_op(
        name="drain_orders", process=lambda messages, ctx: leases.append(ctx.lease_id), max_messages=2
    )

    @dg.job(resource_defs={"queue": resource, "io_manager": Storage()}, executor_def=dg.in_process_executor)
    def orders() -> None:
        drain_orders.alias("first")()
        drain_orders.alias("second")()

    fill(queue, 4)
    result = orders.execute_in_process()

    assert sorted(leases) == [f"{result.run_id}:first/0/0", f"{result.run_id}:second/0/0"]
    assert queue.stats().acked == 4


def test_an_op_and_a_job_name_their_queue_and_keep_their_options() -> None:
    job = build_queue_drain_job(
        name="drain_orders",
        process=len,
        run_tags={"dagster/max_runtime": "3600"},
        queue_name="orders",
        retry_policy=dg.RetryPolicy(max_retries=2),
        pool="orders",
        tags={"size": "small"},
    )
    op = job.graph.node_defs[0]
    assert isinstance(op, dg.OpDefinition)
    assert (op.name, op.retry_policy, op.pool, op.tags) == (
        "drain_orders_op",
        dg.RetryPolicy(max_retries=2),
        "orders",
        {"size": "small"},
    )
    assert job.tags == {"dagster/max_runtime": "3600"}
    assert job.description == op.description
    assert op.description == (
        "Drains at most 100,000 messages that are ready from the queue `orders` of the resource `queue`, in batches of "
        "1,000."
    )


def test_an_op_has_no_asset_and_its_options_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="drain op 'drain_orders': batch_size must be"):
        build_queue_drain_op(name="drain_orders", process=len, batch_size=0)


def test_the_context_of_an_op_says_that_it_has_no_asset(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    op = build_queue_drain_op(name="drain_orders", process=lambda messages, ctx: ctx.asset)
    fill(queue, 1)
    with pytest.raises(TypeError, match=r"this drain is an op and has no asset; use ctx\.op"):
        list(op(dg.build_op_context(), queue=resource))  # type: ignore[call-overload]


# ---------------------------------------------------------------------------------------------------- an outage


def test_a_step_that_meets_an_outage_ends_after_one_retry_budget() -> None:
    """The server stops while the last of eight batches is worked on; releasing each of them would wait anew."""
    budget, batches, stopped = 1.0, 8, list[float]()
    server = RedisServer(PROGRAMS[0]).start()
    try:
        resource = RedisQueueResource(url=server.url, queue_name="orders", retry_budget_seconds=budget)
        with resource.get_queue() as queue:
            fill(queue, 2 * batches)

        def process(messages: list[Message], ctx: QueueDrainContext) -> None:
            if ctx.chunk == batches - 1:
                server.stop()
                stopped.append(time.monotonic())

        job = asset_job([drain_asset(process, batch_size=2)], {"queue": resource, "io_manager": Storage()})
        result = job.execute_in_process(raise_on_error=False)
        seconds = time.monotonic() - stopped[0]
    finally:
        server.remove()

    assert not result.success
    assert budget <= seconds < 5 * budget < 2 * batches * budget
