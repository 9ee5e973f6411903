"""Random interleavings of a group's consumers, crashes and a client of another library lose and double nothing."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from sluicegate.core.keys import GroupKeys
from sluicegate.lease import Lease
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support import state
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

KEYS = GroupKeys("orders", "billing")
STREAM = KEYS.stream


class Interleaving:
    """Two consumers of ours and one of another library, a crash of any of them at any time, and what must be true."""

    def __init__(self, client: redis.Redis, seed: int) -> None:
        self.chance = random.Random(seed)
        self.client = client
        self.stream = RedisStreamQueue("orders", client=client)
        self.groups = [
            ConsumerGroup(
                "orders", "billing", client=client, consumer=name, visibility_timeout_seconds=30, max_delivery_count=4
            )
            for name in ("one", "two")
        ]
        self.groups[0].create("beginning")
        self.leases: list[Lease] = []
        self.published: set[str] = set()
        self.ended: set[str] = set()  # acked by either kind of consumer
        self.foreign: list[str] = []

    def publish(self) -> None:
        if self.chance.random() < 0.5:
            self.published.update(self.stream.publish_many("abc"[: self.chance.randint(1, 3)]).ids)
        else:
            self.published.add(self.client.xadd(STREAM, {"n": self.chance.randint(1, 9)}).decode())

    def claim(self) -> None:
        lease = self.chance.choice(self.groups).claim(self.chance.choice([1, 2, 7, 50]), heartbeat=False)
        if lease:
            self.leases.append(lease)

    def settle(self) -> None:
        if not self.leases:
            return
        lease = self.chance.choice(self.leases)
        held = [message for message in lease.messages if message.slot in lease.unsettled]
        some = self.chance.sample(held, self.chance.randint(1, len(held)))
        verb = self.chance.choice(["ack", "ack", "nack", "release", "bury"])
        if verb == "nack":
            lease.nack(some, delay_seconds=self.chance.choice([0, 1000]))
        else:
            getattr(lease, verb)(some)
        if verb == "ack":
            self.ended.update(message.id for message in some)
        if not lease.unsettled:
            self.leases.remove(lease)

    def crash(self) -> None:
        if self.leases:
            lease = self.leases.pop(self.chance.randrange(len(self.leases)))
            state.expire(self.client, "orders", lease.id)

    def read(self) -> None:
        found = self.client.xreadgroup("billing", "node", {STREAM: ">"}, count=self.chance.randint(1, 3))
        self.foreign += [entry.decode() for _, entries in found for entry, _ in entries]

    def ack_elsewhere(self) -> None:
        if self.foreign:
            one = self.foreign.pop(self.chance.randrange(len(self.foreign)))
            assert self.client.xack(STREAM, "billing", one) == 1
            self.ended.add(one)

    def crash_elsewhere(self) -> None:
        if self.foreign:
            some = self.chance.sample(self.foreign, self.chance.randint(1, len(self.foreign)))
            self.client.xclaim(STREAM, "billing", "node", 0, some, idle=60_000, justid=True)
            self.client.hdel(KEYS.counters, "adopt_at")
            self.foreign = [one for one in self.foreign if one not in some]

    def fall_due(self) -> None:
        state.fall_due(self.client, "orders")

    def redrive(self) -> None:
        self.groups[0].redrive(limit=2)

    def check(self) -> None:
        """Assert that every message is in one place, and that the lag is that of the position."""
        (info,) = self.client.xinfo_groups(STREAM)
        unread = [one.decode() for one, _ in self.client.xrange(STREAM, b"(" + info["last-delivered-id"])]
        assert self.groups[0].lag() == len(unread)
        places = [*unread, *(one["message_id"].decode() for one in self._pending())]
        for held in state.read(self.client, KEYS.leases.removesuffix(b"leases")).ids().values():
            places += held
        assert sorted(places) == sorted(self.published - self.ended)
        state.check(self.client)

    def _pending(self) -> list[dict[str, bytes]]:
        return self.client.xpending_range(STREAM, "billing", "-", "+", 1000)

    def finish(self) -> None:
        """Let everyone crash, and drain the group with one consumer."""
        while self.leases:
            self.crash()
        while self.foreign:
            self.crash_elsewhere()
        self.groups[0].redrive()
        for _ in range(500):
            self.fall_due()
            self.client.hdel(KEYS.counters, "adopt_at")
            lease = self.groups[1].claim(50, heartbeat=False)
            if not lease and self.groups[1].depth().ready == 0:
                break
            self.ended.update(message.id for message in lease.messages)
            lease.ack()
        dead = {letter.id for letter in self.groups[0].peek(1000, state="dead")}
        assert self.published == self.ended | dead
        assert not self.ended & dead


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every_server
def test_whatever_happens_in_a_group_each_message_is_in_one_place_and_ends(client: redis.Redis, seed: int) -> None:
    world = Interleaving(client, seed)
    steps = [
        *[world.publish] * 3, *[world.claim] * 3, *[world.settle] * 3, world.crash, world.read, world.ack_elsewhere,
        world.crash_elsewhere, world.fall_due, world.redrive,
    ]  # fmt: skip
    for _ in range(80):
        world.chance.choice(steps)()
        world.check()
    world.finish()


def consume(server: RedisServer) -> None:
    """Consume for ever."""
    with server.client() as client:
        group = ConsumerGroup("orders", "billing", client=client, visibility_timeout_seconds=1)
        while True:
            lease = group.claim(7, wait_seconds=1, heartbeat=False)
            for message in lease.messages:
                client.sadd("handled", message.id)
            lease.ack()


@contextmanager
def consumer(server: RedisServer) -> Iterator[None]:
    """Run a consumer in a process of its own, and kill it at the end."""
    process = multiprocessing.get_context("fork").Process(target=consume, args=(server,))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def test_consumers_that_are_killed_at_random_points_lose_nothing(server: RedisServer, client: redis.Redis) -> None:
    stream = RedisStreamQueue("orders", client=client)
    group = stream.group("billing", start="beginning", visibility_timeout_seconds=1)
    group.create("beginning")
    published = set(stream.publish_many({"n": n} for n in range(3000)).ids)
    chance, seen = random.Random(1), 0
    for _ in range(5):
        with consumer(server):
            wait_until(lambda before=seen: client.scard("handled") > before, "it consumes")
            time.sleep(chance.random() / 20)  # not to wait for anything: so that the kill comes at any point
        seen = client.scard("handled")
    assert seen > 0

    def drain() -> bool:
        lease = group.claim(1000, heartbeat=False)
        client.sadd("handled", *(message.id for message in lease.messages), "none")
        lease.ack()
        depth = group.depth()
        return depth.ready == depth.in_flight == 0

    wait_until(drain, "everything is handled")
    assert {one.decode() for one in client.smembers("handled")} - {"none"} == published
    assert group.depth().dead == 0
