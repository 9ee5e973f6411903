"""Uses of the public names, for mypy: a line that ends in `# error: <code>` has to be refused, every other one not.

Nothing here is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypedDict

import sluicegate.asyncio
import sluicegate.asyncio.worker
from sluicegate import Durability, Json, Payload, QueueEvent, RedisGateway, RedisMessageQueue, replicated
from sluicegate.jobs import ClaimedJob, JobKind, RedisJobQueue
from sluicegate.options import QueueOptions
from sluicegate.spark import DrainSummary, PayloadError, drain, lease_batch
from sluicegate.streams import ConsumerGroup
from sluicegate.worker import Delivery, Middleware, Retry, Worker, WorkerReport


class Item(TypedDict):
    name: str


class Order(TypedDict, total=False):
    order_id: int
    items: list[Item]


def options(on_event: Any) -> None:
    RedisMessageQueue("orders", url="redis://h", max_delivery_count=3, on_error="bury", on_event=on_event)
    RedisMessageQueue("orders", url="redis://h", heartbeat_interval_seconds=0, get_deduplication_key="{a}:{b}")
    RedisMessageQueue("orders", url="redis://h", max_delivery_cuont=3)  # error: call-arg
    RedisMessageQueue("orders", url="redis://h", on_error="ignore")  # error: arg-type
    RedisMessageQueue("orders", url="redis://h", visibility_timeout_seconds="60")  # error: arg-type
    RedisMessageQueue("orders", url="redis://h", key_separator=":")  # error: call-arg
    sluicegate.asyncio.RedisMessageQueue("orders", url="redis://h", max_delivery_cuont=3)  # error: call-arg
    RedisGateway(url="redis://h", retry_budget_seconds=3)
    RedisGateway(url="redis://h", retry_budget=3)  # error: call-arg
    sluicegate.asyncio.RedisGateway(url="redis://h", max_pending_length=3)  # error: call-arg
    given: QueueOptions = {"max_delivery_count": 3, "strict_payload_types": True}
    RedisMessageQueue("orders", url="redis://h", **given)
    given = {"max_delivery_cuont": 3}  # error: typeddict-unknown-key


def payloads(queue: RedisMessageQueue, order: Order, anything: dict[str, Any], numbers: dict[str, int]) -> None:
    for payload in (order, anything, numbers):
        queue.publish(payload)
    queue.publish({"a": [1, 2.5, None, {"b": order}]})
    queue.publish([1, "a"])
    queue.publish("text")
    queue.publish(b"bytes")
    queue.publish(message="text", delay_seconds=5)
    queue.publish(42)  # error: call-overload
    queue.publish(None)  # error: call-overload
    queue.publish({"at": datetime.now(UTC)})  # error: dict-item
    queue.publish({1: 2})  # error: dict-item
    queue.publish({1, 2})  # error: call-overload
    queue.publish()  # error: call-overload
    queue.publish("text", message="text")  # error: call-overload
    queue.publish("text", delay=5)  # error: call-overload
    queue.publish_many([order, order])
    queue.publish_many({"n": number} for number in range(3))
    queue.publish_many(["a", b"b"], partial=True)
    queue.publish_many([1, 2])  # error: list-item
    list(queue.publish_chunks([anything], batch_size=10, delay_seconds=5, durability="fsync", ahead=True))
    list(queue.publish_chunks([anything], durability="disk"))  # error: arg-type
    json: Json = {"a": [1, None]}
    payload_of_mine: Payload = [json]
    queue.publish(payload_of_mine)


def durability(queue: RedisMessageQueue, word: str) -> None:
    queue.publish("a", durability="fsync")
    queue.publish("a", durability=replicated(2))
    queue.publish("a", durability=Durability())
    queue.publish("a", durability="disk")  # error: call-overload
    queue.publish("a", durability=word)  # error: call-overload
    queue.publish_many("a", durability="disk")  # error: arg-type


def on_text(payload: str) -> None: ...


def on_bytes(payload: bytes) -> int: ...  # type: ignore[empty-body]


def on_either(payload: str | bytes) -> None: ...


def on_number(payload: int) -> None: ...


def on_two(payload: str, more: str) -> None: ...


def handlers(queue: RedisMessageQueue) -> None:
    queue.process_message_callback(on_text)
    queue.process_message_callback(on_bytes)
    queue.process_message_callback(on_either)
    queue.process_message_callback(lambda payload: print(payload, len(payload)))
    queue.process_message_callback(on_number)  # error: arg-type
    queue.process_message_callback(on_two)  # error: arg-type
    queue.process_message_callback("on_text")  # error: arg-type
    RedisMessageQueue("orders", url="redis://h", on_event=on_text)  # error: arg-type


async def in_asyncio(queue: sluicegate.asyncio.RedisMessageQueue) -> None:
    async def handle(payload: bytes) -> None: ...

    async def observe(event: QueueEvent) -> None: ...

    async with sluicegate.asyncio.RedisMessageQueue("orders", url="redis://h", on_event=observe) as mine:
        accepted: bool = await mine.publish(message={"a": 1})
        await mine.process_message_callback(handle)
        stopped: bool = await mine.shutdown(timeout=None)
        print(accepted, stopped)
    await queue.publish(42)  # error: call-overload
    with queue:  # error: attr-defined
        pass


def at_the_end() -> Iterator[bool]:
    with RedisMessageQueue("orders", url="redis://h") as queue:
        name: str = queue.name
        print(name)
        yield queue.shutdown(timeout=5)


def in_spark(spark: Any, queue: RedisMessageQueue) -> None:
    def process(batch: list[Any]) -> None: ...

    summary: DrainSummary = drain(spark, queue, process, until="deadline", deadline_seconds=5)
    drain(spark, queue, process, batchsize=5)  # error: call-arg
    drain(spark, queue, process, until="never")  # error: arg-type
    try:
        with lease_batch(spark, queue, limit=5, run_id="r"):
            print(summary)
    except PayloadError as error:
        print(error.message_ids)


def with_workers(queue: RedisMessageQueue, group: ConsumerGroup, jobs: RedisJobQueue) -> None:
    worker = Worker(queue, concurrency=4, retry=Retry(max_attempts=3), on_unhandled="ack", middleware=[Middleware()])
    Worker(group)
    Worker(jobs)

    @worker.handler("order_created", retry=Retry(max_attempts=2))
    def on_created(order: dict[str, Any], delivery: Delivery) -> bool:
        return delivery.attempt > 1

    print(on_created({}, 7))  # error: arg-type
    worker.register("order_paid", on_bytes)
    worker.register("order_paid")  # error: call-arg
    worker.register("order_paid", "on_paid")  # error: arg-type
    worker.register(7, on_bytes)  # error: arg-type
    worker.register("order_paid", on_bytes, model="Order")  # error: arg-type
    worker.register("order_paid", on_bytes, retry=3)  # error: arg-type
    Worker(queue, on_unhandled="drop")  # error: arg-type
    Worker(queue, concurency=4)  # error: call-arg
    Worker("orders")  # error: arg-type
    with worker as running:
        done: int = running.run_once(limit=5).handled
        print(done, running.stop(timeout=5))


async def with_asyncio_workers(queue: sluicegate.asyncio.RedisMessageQueue, other: RedisMessageQueue) -> None:
    worker = sluicegate.asyncio.worker.Worker(queue)

    @worker.handler("order_created")
    async def on_created(order: dict[str, Any]) -> None: ...

    report: WorkerReport = await worker.run()
    print(report.claimed)
    sluicegate.asyncio.worker.Worker(other)  # error: arg-type
    with worker:  # error: attr-defined
        pass


def misspelt() -> None:
    print(sluicegate.RedisMessageQueue, sluicegate.errors.RedisUnavailableError)
    print(sluicegate.RedisMesageQueue)  # error: attr-defined
    print(sluicegate.errors.RedisUnavailableEror)  # error: attr-defined


def jobs(queue: RedisJobQueue, order: Order, job: ClaimedJob) -> None:
    RedisJobQueue("work", url="redis://h", kinds={"email": JobKind(max_attempts=2)}, max_pending_length=5)
    RedisJobQueue("work", url="redis://h", kinds={"email": 2})  # error: dict-item
    RedisJobQueue("work", url="redis://h", max_pending_lenght=5)  # error: call-arg
    made: str = queue.enqueue(order, kind="order")
    queue.enqueue({"a": [1, None]}, delay_seconds=5)
    queue.enqueue(42)  # error: arg-type
    queue.enqueue({"a": 1}, knid="order")  # error: call-arg
    ids: list[str] = queue.cancel([made, *queue.enqueue_many([order]).ids])
    status: str = queue.get(ids[0]).status
    queue.list("waiting")
    queue.list("pending")  # error: arg-type
    with queue.claim_jobs(10, wait_seconds=1) as lease:
        lease.complete_many({each: {"done": True} for each in lease.jobs})
        lease.complete_many({"id": 1})  # error: dict-item
    job.update(0.5, "half")
    job.update("half")  # error: arg-type
    job.fail(OSError(status), retry=False)
    waited: int | None = queue.stats().waiting
    queue.wait(ids, timeout_seconds=waited)
