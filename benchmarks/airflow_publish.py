"""Messages per second of the Airflow publish operator beside `publish_many`, in alternating rounds on one server."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import median
from benchmarks.messages import KEY_FIELD, QUEUE, Order, orders
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar
from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

__all__ = ["run", "steps"]

_LEAST = 0.8
_SIDES = ("publish_many", "operator", "publish_many of lines", "operator, file of lines")


def steps(settings: Settings) -> Iterator[Step]:
    def measure() -> Found:
        rates = run(rounds=settings["rounds"], count=settings["count"])
        how = f"median of {settings['rounds']} rounds of {settings['count']:,}, unix socket"
        bars = [
            Bar(name, "fast", _ratio(rates, ours, plain), _LEAST, True, "x", how)
            for name, ours, plain in (
                ("Airflow operator / publish_many", "operator", "publish_many"),
                (
                    "Airflow operator, file / publish_many of its lines",
                    "operator, file of lines",
                    "publish_many of lines",
                ),
            )
        ]
        medians = {name: {"messages/s": median(each)} for name, each in rates.items()}
        return Found({"Airflow publish operator": medians}, bars)

    yield "publish operator", measure


def run(*, rounds: int, count: int) -> dict[str, list[float]]:
    """Return messages per second of each side by round, after one round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in _SIDES}
    server = RedisServer(programs()[0]).start()
    try:
        with tempfile.TemporaryDirectory(prefix="sg-airflow-") as folder, server.client() as client:
            sides = _sides(server.url, orders(count), Path(folder))
            for number in range(rounds + 1):
                for name in _SIDES if number % 2 else _SIDES[::-1]:
                    client.flushall()
                    start = time.perf_counter()
                    published = sides[name]()
                    seconds = time.perf_counter() - start
                    assert published == count
                    if number > 0:
                        found[name].append(count / seconds)
    finally:
        server.remove()
    return found


def _sides(url: str, messages: list[Order], folder: Path) -> dict[str, Callable[[], int]]:
    """Return what is measured: each publishes all messages with a deduplication key, and returns their number."""
    os.environ["AIRFLOW_HOME"] = str(folder)
    os.environ["AIRFLOW_CONN_SLUICEGATE_DEFAULT"] = json.dumps({"conn_type": "sluicegate", "extra": {"url": url}})
    from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator

    path = folder / "orders.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))

    def lines() -> Iterator[Order]:
        with path.open("rb") as file:
            yield from map(json.loads, file)

    def publish_many(given: Callable[[], Any]) -> int:
        with RedisMessageQueue(QUEUE, url=url, get_deduplication_key=KEY_FIELD) as queue:
            return queue.publish_many(given()).accepted

    def operator(**given: Any) -> int:
        publish = RedisQueuePublishOperator(task_id="publish", queue_name=QUEUE, deduplication_key=KEY_FIELD, **given)
        published: int = publish.execute({})["published"]
        return published

    return {
        "publish_many": lambda: publish_many(lambda: messages),
        "operator": lambda: operator(messages=lambda: messages),
        "publish_many of lines": lambda: publish_many(lines),
        "operator, file of lines": lambda: operator(path=path),
    }


def _ratio(rates: dict[str, list[float]], ours: str, plain: str) -> float:
    return median(our / other for our, other in zip(rates[ours], rates[plain], strict=True))
