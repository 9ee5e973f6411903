"""Programs written for redis-message-queue run here with only the import changed, and the migration page is true."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

import sluicegate
import sluicegate.asyncio
from sluicegate.config import QueueConfig
from tests.support.project import ROOT
from tests.support.servers import RedisServer

TEXT = (ROOT / "docs" / "migration.md").read_text()
OPTIONS = {field.name for field in dataclasses.fields(QueueConfig)} | {"name", "client", "gateway"}
FLAVOURS: list[tuple[Any, Callable[[], Any]]] = [
    (sluicegate, redis.Redis),
    (sluicegate.asyncio, redis.asyncio.Redis),
]

QUICKSTART = """
import json, os, uuid
from redis import Redis
from redis_message_queue import RedisMessageQueue

connection = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
orders = RedisMessageQueue(
    "first-steps", client=connection, deduplication=True, get_deduplication_key=lambda order: order["number"]
)
order = {"number": uuid.uuid4().hex, "goods": "tea"}
print(orders.publish(order), orders.publish(order))
with orders.process_message() as payload:
    if payload is not None:
        print(type(payload).__name__, json.loads(payload)["goods"])
print(orders.drain(timeout=1))
connection.close()
"""

ASYNC_QUICKSTART = """
import asyncio, json, os, uuid
from redis.asyncio import Redis
from redis_message_queue.asyncio import RedisMessageQueue

async def steps():
    connection = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    orders = RedisMessageQueue(
        "first-steps", client=connection, deduplication=True, get_deduplication_key=lambda order: order["number"]
    )
    order = {"number": uuid.uuid4().hex, "goods": "tea"}
    print(await orders.publish(order), await orders.publish(order))
    async with orders.process_message() as payload:
        if payload is not None:
            print(type(payload).__name__, json.loads(payload)["goods"])
    print(await orders.drain(timeout=1))
    await orders.aclose()
    await connection.aclose()

asyncio.run(steps())
"""

CONSUMER = """
import os, signal
from redis import Redis
from redis_message_queue import GracefulInterruptHandler, QueueDrainedError, RedisMessageQueue, RedisMessageQueueError

interrupt = GracefulInterruptHandler()
connection = Redis.from_url(os.environ["REDIS_URL"])
orders = RedisMessageQueue("consumed", client=connection, interrupt=interrupt, enable_completed_queue=True)
orders.publish("one"), orders.publish("two")
while not interrupt.is_interrupted():
    with orders.process_message() as payload:
        if payload is not None:
            print(payload)
            os.kill(os.getpid(), signal.SIGTERM)
orders.drain(timeout=1)
try:
    orders.publish("late")
except QueueDrainedError as refused:
    print(isinstance(refused, RedisMessageQueueError))
orders.close()
"""

ASYNC_CONSUMER = """
import asyncio, os, signal
from redis.asyncio import Redis
from redis_message_queue.asyncio import (
    EventOperation, GracefulInterruptHandler, QueueDrainedError, QueueEvent, RedisMessageQueue, RedisMessageQueueError
)

refused = []
def observe(event: QueueEvent):
    if event.operation is EventOperation.PUBLISH and event.outcome == "failure":
        refused.append(event.exception_type)

async def consume(interrupt):
    connection = Redis.from_url(os.environ["REDIS_URL"])
    orders = RedisMessageQueue("consumed", client=connection, interrupt=interrupt, on_event=observe)
    await orders.publish(message="one"), await orders.publish(message="two")
    while not interrupt.is_interrupted():
        async with orders.process_message() as payload:
            if payload is not None:
                print(payload)
                os.kill(os.getpid(), signal.SIGTERM)
    await orders.drain(timeout=None)
    try:
        await orders.publish("late")
    except QueueDrainedError as error:
        print(isinstance(error, RedisMessageQueueError), refused)
    await orders.aclose()
    await connection.aclose()

asyncio.run(consume(GracefulInterruptHandler(verbose=False)))
"""


def run(code: str, server: RedisServer) -> list[str]:
    """Run a program with only its import changed; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace("redis_message_queue", "sluicegate")],
        env={**os.environ, "REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("code", [QUICKSTART, ASYNC_QUICKSTART], ids=["sync", "asyncio"])
def test_a_quickstart_runs_with_only_the_import_changed(code: str, server: RedisServer, client: redis.Redis) -> None:
    assert run(code, server) == ["True False", "str tea", "True"]


def test_a_consumer_with_an_interrupt_runs_with_only_the_import_changed(
    server: RedisServer, client: redis.Redis
) -> None:
    assert run(CONSUMER, server) == ["b'one'", "True"]


def test_an_asyncio_consumer_imports_all_it_needs_from_one_module(server: RedisServer, client: redis.Redis) -> None:
    assert run(ASYNC_CONSUMER, server) == ["b'one'", "True ['QueueDrainedError']"]


@pytest.mark.parametrize(("module", "connect"), FLAVOURS, ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deduplication": False},
        {"deduplication": True, "get_deduplication_key": lambda order: order["id"]},
        {"enable_completed_queue": True, "enable_failed_queue": True},
        {"enable_completed_queue": True, "max_completed_length": 10_000},
        {"enable_failed_queue": True, "max_failed_length": None},
        {"visibility_timeout_seconds": None, "max_delivery_count": None},
        {"visibility_timeout_seconds": 300, "heartbeat_interval_seconds": 60, "on_heartbeat_failure": lambda: None},
        {"max_delivery_count": 1},
        {"max_pending_length": 100_000, "pending_overload_policy": "raise"},
        {
            "max_pending_length": 10,
            "pending_overload_policy": "block",
            "pending_overload_block_timeout_seconds": 0.5,
        },
        {"max_pending_length": 10, "pending_overload_policy": "drop_oldest", "max_delivery_count": None},
        {"strict_payload_types": True, "max_payload_bytes": 1024, "max_payload_depth": 4},
        {"strict_envelope_decoding": True, "on_event": print},
    ],
    ids=lambda options: "+".join(options) or "defaults",
)
def test_constructor_calls_in_the_style_of_version_8_are_understood(
    module: Any, connect: Callable[[], Any], options: dict[str, Any]
) -> None:
    assert module.RedisMessageQueue("orders", client=connect(), **options).name == "orders"


@pytest.mark.parametrize(("module", "connect"), FLAVOURS, ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"deduplication": True}, "get_deduplication_key"),
        ({"deduplication": False, "get_deduplication_key": "id"}, "get_deduplication_key"),
        ({"visibility_timeout_seconds": None}, "max_delivery_count=None"),
        ({"heartbeat_interval_seconds": 150}, "less than half"),
        ({"pending_overload_policy": "drop_oldest", "max_delivery_count": None}, "max_pending_length"),
        ({"max_pending_length": 5, "pending_overload_policy": "drop_oldest"}, "max_delivery_count"),
        ({"enable_completed_queue": True, "max_completed_length": 0}, "max_completed_length"),
        ({"max_failed_length": 100}, "enable_failed_queue=True"),
        ({"key_separator": "::"}, "any name works"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_what_was_a_mistake_there_or_is_gone_is_refused_with_the_way_out(
    module: Any, connect: Callable[[], Any], options: dict[str, Any], reported: str
) -> None:
    with pytest.raises(sluicegate.ConfigurationError, match=re.escape(reported)):
        module.RedisMessageQueue("orders", client=connect(), **options)


@pytest.mark.parametrize(("module", "connect"), FLAVOURS, ids=["sync", "asyncio"])
def test_a_gateway_takes_the_connection_and_the_retry_options_of_the_other_library(
    module: Any, connect: Callable[[], Any]
) -> None:
    gateway = module.RedisGateway(
        redis_client=connect(), retry_budget_seconds=60, retry_max_delay_seconds=2.0, retry_initial_delay_seconds=0.05
    )
    queue = module.RedisMessageQueue("orders", gateway=gateway, max_delivery_count=3, interrupt=None)

    assert queue.name == "orders"
    assert gateway.retry_budget_seconds == 60


def rows(title: str) -> list[tuple[str, str]]:
    """Return the first two cells of each row of a section's table."""
    section = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (`[^|]+) \| ([^|]+?) \|", section, re.M)


def table_of(first: str) -> str:
    """Return the table with this first cell."""
    return TEXT.split(f"\n| {first} |")[1].split("\n\n")[0]


def test_each_option_of_the_table_is_what_the_table_says() -> None:
    table = [(there.strip("`"), here.strip("`")) for there, here in rows("Options")]
    make: Any = sluicegate.RedisMessageQueue
    assert len(table) == 30
    for there, here in table:
        if here in ("same", "same name"):  # the second: taken, and means something else
            assert there in OPTIONS, there
            continue
        assert there not in OPTIONS, there
        with pytest.raises(sluicegate.ConfigurationError, match=here if here != "gone" else there):
            make("orders", client=redis.Redis(), **{there: 1})
        assert here == "gone" or here in OPTIONS


def test_each_exception_of_the_table_is_what_the_table_says() -> None:
    table = [(there.strip("`"), here) for there, here in rows("Exceptions")]
    assert len(table) == 12
    for name, here in table:
        if here.startswith("gone"):
            assert not hasattr(sluicegate, name), name
        else:
            assert issubclass(getattr(sluicegate, name), sluicegate.RedisMessageQueueError)


def test_each_event_of_the_table_exists() -> None:
    operations = {str(operation) for operation in sluicegate.EventOperation}
    outcomes = {str(outcome) for outcome in sluicegate.EventOutcome}
    table = re.findall(r"^\| `[^|]+ \| ([^|]+?) \|", table_of("operation there"), re.M)
    named = {word for here in table for word in re.findall(r"`(\w+)`", here)}
    assert len(named) > 10
    assert named - OPTIONS <= operations | outcomes


def test_each_field_of_an_event_is_in_the_table_of_fields() -> None:
    """Every field of the other library and every field of this one has a row."""
    table = re.findall(r"^\| ([^|]+) \| ([^|]+?) \|$", table_of("field there"), re.M)
    there = {name for cell, _ in table for name in re.findall(r"`(\w+)`", cell)} - {"success", "failure", "skipped"}
    assert there == {
        "queue", "operation", "outcome", "message_id", "claim_id", "lease_token_hash", "destination_queue",
        "delivery_count", "max_delivery_count", "exception_type", "duration_ms", "error", "timeout_seconds",
    }  # fmt: skip
    here = {name for cell in table for name in re.findall(r"`(\w+)`", " ".join(cell))}
    fields = {field.name for field in dataclasses.fields(sluicegate.QueueEvent)}
    assert fields <= here
    gone = {name for cell, here in table if here.startswith("gone") for name in re.findall(r"`(\w+)`", cell)}
    assert not gone & fields


def test_each_class_that_is_gone_is_not_here() -> None:
    gone = [name for there, _ in rows("Removed classes") for name in re.findall(r"`(\w+)`", there)]
    assert len(gone) == 7
    assert not [name for name in gone if hasattr(sluicegate, name) or hasattr(sluicegate.asyncio, name)]
