"""The workload that every library runs: a process that reads one request per line and answers with one line of JSON.

It is run by the interpreter of the library's own environment, so it needs nothing but that library and redis-py, and
it drives both through the same public names.

Usage: python workload.py LIBRARY URL     requests: NAME COUNT, with the names of MEASUREMENTS
"""

from __future__ import annotations

import importlib
import inspect
import json
import platform
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import redis

QUEUE = "orders"
KEY_FIELD = "order_id"
PAYLOAD_BYTES = 200
BATCH = 1000
_OURS = "sluicegate"

Figures = dict[str, float]


class Workload:
    """One library on one server; every measurement begins with an empty one."""

    def __init__(self, library: str, url: str) -> None:
        self.library = library
        self._url = url
        self._make = importlib.import_module(library).RedisMessageQueue
        self.client = redis.Redis.from_url(url)

    def queue(self, **options: Any) -> Any:
        """Return a queue with deduplication, and default options but for those given."""
        if "deduplication" in inspect.signature(self._make).parameters:  # version 11 has no such switch
            options["deduplication"] = True
        client = redis.Redis.from_url(self._url)
        return self._make(QUEUE, client=client, get_deduplication_key=lambda payload: payload[KEY_FIELD], **options)

    def versions(self, count: int) -> dict[str, str]:
        """Return what runs here."""
        names = ("redis", "hiredis") if self.library == _OURS else ("redis-message-queue", "redis", "hiredis")
        return {"python": platform.python_version(), **{name: version(name) for name in names}}

    def singles(self, count: int) -> Figures:
        """Publish messages one by one, then claim, decode and ack them one by one."""
        messages = orders(count)
        queue = self.queue()
        self._warm(queue)
        cpu, start = self._redis_cpu(), time.perf_counter()
        accepted = sum(queue.publish(message) for message in messages)
        published, published_cpu = time.perf_counter() - start, self._redis_cpu() - cpu
        assert accepted == count, accepted
        cpu, start = self._redis_cpu(), time.perf_counter()
        for message in messages:
            with queue.process_message() as payload:
                assert json.loads(payload)[KEY_FIELD] == message[KEY_FIELD]
        return {
            "publish/s": count / published,
            "claim+ack/s": count / (time.perf_counter() - start),
            "Redis CPU µs per publish": 1e6 * published_cpu / count,
            "Redis CPU µs per claim+ack": 1e6 * (self._redis_cpu() - cpu) / count,
        }

    def loop(self, count: int) -> Figures:
        """Claim, decode and ack the same messages one by one, with a library that has a loop for that."""
        queue, messages = self.queue(), orders(count)
        self._warm(queue)
        queue.publish_many(messages)
        cpu, start = self._redis_cpu(), time.perf_counter()
        keys = [json.loads(message.payload)[KEY_FIELD] for message in queue.consume(count)]
        taken = time.perf_counter() - start
        assert keys == [message[KEY_FIELD] for message in messages]
        return {
            "claim+ack/s": count / taken,
            "Redis CPU µs per claim+ack": 1e6 * (self._redis_cpu() - cpu) / count,
        }

    def batches(self, count: int) -> Figures:
        """Publish the same messages in batches of 1,000, with a library that has batches."""
        queue = self.queue()
        self._warm(queue)
        for first in range(0, count, BATCH):
            queue.publish_many(orders(BATCH, first))
        cpu, start, acked = self._redis_cpu(), time.perf_counter(), 0
        while acked < count:
            with queue.claim(BATCH) as lease:
                acked += sum(json.loads(message.payload)[KEY_FIELD] != "" for message in lease)
        return {
            "claim+ack/s": count / (time.perf_counter() - start),
            "Redis CPU µs per claim+ack": 1e6 * (self._redis_cpu() - cpu) / count,
        }

    def wakes(self, count: int) -> list[float]:
        """Milliseconds from before a publish until a consumer that had waited without a result holds the message."""
        publisher, consumer = self.queue(), self.queue()
        self._warm(publisher)
        found: list[float] = []
        handled = threading.Event()

        def consume() -> None:
            while len(found) < count:
                with consumer.process_message() as payload:
                    if payload is not None:
                        found.append(1000 * (time.perf_counter() - json.loads(payload)["sent"]))
                        handled.set()

        thread = threading.Thread(target=consume, daemon=True)
        thread.start()
        randomly = random.Random(count)
        for number in range(count):
            time.sleep(0.3 + randomly.random() / 4)
            handled.clear()
            publisher.publish({KEY_FIELD: f"wake {number}", "sent": time.perf_counter()})
            assert handled.wait(30)
        thread.join(30)
        return found

    def in_flight(self, count: int) -> Figures:
        """Bytes that Redis uses per message while it waits, and while each is held by itself."""
        queue = self.queue()
        self._warm(queue)
        empty = self._used()
        for message in orders(count):
            queue.publish(message)
        pending = self._used() - empty
        with ExitStack() as stack:
            for _ in range(count):
                assert stack.enter_context(queue.process_message()) is not None
            in_flight = self._used() - empty
        return {"bytes pending": pending / count, "bytes in flight": in_flight / count}

    def heartbeat(self, count: int) -> Figures:
        """Bytes that one heartbeat sends for a message of so many bytes, and how many there were."""
        queue = self.queue(visibility_timeout_seconds=2, heartbeat_interval_seconds=0.3)
        self._warm(queue)
        queue.publish({KEY_FIELD: "held", "note": "x" * count})
        with queue.process_message() as payload:
            assert payload is not None
            time.sleep(0.5)  # the first beat may load a script
            first, second = self._traffic(), self._traffic()
            time.sleep(1.5)
            third = self._traffic()
        beats = third[1] - second[1]
        return {"bytes": (third[0] - second[0] - (second[0] - first[0])) / beats, "beats": beats}

    def _warm(self, queue: Any) -> None:
        """Load scripts and open connections, then empty the server of everything but the scripts."""
        self.client.flushall()
        queue.publish({KEY_FIELD: "warm"})
        with queue.process_message() as payload:
            assert payload is not None
        self.client.flushall()

    def _redis_cpu(self) -> float:
        cpu = self.client.info("cpu")
        return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])

    def _used(self) -> int:
        time.sleep(0.3)  # buffers of connections shrink
        return int(self.client.info("memory")["used_memory"])

    def _traffic(self) -> tuple[int, int]:
        """Bytes received, and scripts called, so far."""
        commands = self.client.info("commandstats")
        calls = sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
        return self.client.info("stats")["total_net_input_bytes"], calls


def orders(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Different payloads of exactly 200 bytes of compact JSON."""
    return [_order(number) for number in range(first, first + count)]


def _order(number: int) -> dict[str, Any]:
    order = {KEY_FIELD: f"2013-01-01-EWR-{number:09}", "customer": "Ada Lovelace", "amount": number % 1000 + 0.25}
    order["note"] = "x" * (PAYLOAD_BYTES - len(json.dumps({**order, "note": ""}, separators=(",", ":"))))
    return order


MEASUREMENTS: dict[str, Callable[[Workload, int], Any]] = {
    "versions": Workload.versions,
    "singles": Workload.singles,
    "loop": Workload.loop,
    "batches": Workload.batches,
    "wakes": Workload.wakes,
    "in flight": Workload.in_flight,
    "heartbeat": Workload.heartbeat,
}


def main(library: str, url: str) -> None:
    """Answer requests until there are no more."""
    workload = Workload(library, url)
    for line in sys.stdin:
        name, _, count = line.rstrip("\n").rpartition(" ")
        print(json.dumps(MEASUREMENTS[name](workload, int(count))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
