"""What a publish waits for: nothing, the disk, or replicas; and what it says when they do not have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from sluicegate.clock import elapsed_clock
from sluicegate.core.durability import FSYNC, Durability, replicated
from sluicegate.core.keys import QueueKeys
from sluicegate.core.publishing import Publishing
from sluicegate.core.transitions.publish import Batch, Published, publish_operation
from sluicegate.errors import NotDurableError
from tests.conformance.running import Drive
from tests.support.batches import one_call
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.waiting import wait_until

KEYS = QueueKeys("orders")
SOON = 0.15


class Pair:
    """A server and its replica, which can be frozen."""

    def __init__(self, main: RedisServer, replica: RedisServer) -> None:
        self.main = main
        self._replica = replica

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._replica._process is not None
        os.kill(self._replica._process.pid, number)


@pytest.fixture(params=PROGRAMS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    main = RedisServer(request.param, "--repl-diskless-sync-delay", "0", port=free_port())
    replica = RedisServer(request.param, "--replicaof", "127.0.0.1", str(main.port), port=free_port())
    try:
        main.start()
        replica.start()
        with replica.client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica follows")
        with main.client() as client:
            wait_until(lambda: client.info("replication")["connected_slaves"] == 1, "the replica is known")
        made = Pair(main, replica)
        yield made
        made.thaw()
    finally:
        replica.remove()
        main.remove()


def batch(durability: Durability | str, name: bytes = b"b", *payloads: str, keyed: bool = False) -> Batch:
    publishing = Publishing(KEYS, str if keyed else None, 3600, 120)
    return one_call(publishing, name, list(payloads) or ["x", "y"], durability=durability)


def test_memory_sends_nothing_more(client: redis.Redis) -> None:
    drive = Drive(client)
    drive(publish_operation(KEYS, batch("memory"), clock=elapsed_clock))
    assert drive.calls[0].then == ()


def test_a_replica_confirms(pair: Pair) -> None:
    with pair.main.client() as client:
        drive = Drive(client)
        done = drive(publish_operation(KEYS, batch(replicated(1, timeout_seconds=10)), clock=elapsed_clock))
        assert done == Published(2, {})
        assert drive.calls[0].then == (b"WAIT", 1, 10_000)


def test_too_few_replicas_are_an_error_that_says_what_was_published(pair: Pair) -> None:
    with pair.main.client() as client:
        drive = Drive(client)
        sent = batch(replicated(2, timeout_seconds=SOON))
        missing = r"2 of 2 messages were published, but [01] of 2 replicas had it within 0\.15 s"
        with pytest.raises(NotDurableError, match=missing) as caught:
            drive(publish_operation(KEYS, sent, clock=elapsed_clock, emits_events=True))
        assert caught.value.ids == ("b-0", "b-1")
        assert caught.value.published == Published(2, {})
        assert drive.reported == [("success", 2), ("failure", 2)]
        assert client.llen(KEYS.pending) == 2


@pytest.mark.parametrize("keyed", [False, True])
def test_a_repeat_is_not_confirmed_by_a_replica_that_lacks_the_first(pair: Pair, keyed: bool) -> None:
    """WAIT answers for the last write of its own connection: one that only reads would be confirmed by anybody."""
    sent = batch(replicated(1, timeout_seconds=SOON), keyed=keyed)
    with pair.main.client() as client, pair.main.client() as another:
        pair.freeze()
        with pytest.raises(NotDurableError):
            Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock))
        with pytest.raises(NotDurableError):
            Drive(another)(publish_operation(KEYS, sent, clock=elapsed_clock))
        pair.thaw()
        confirmed = replicated(1, timeout_seconds=10)
        again = Batch(**{name: getattr(sent, name) for name in sent.__slots__} | {"durability": confirmed})
        assert Drive(another)(publish_operation(KEYS, again, clock=elapsed_clock)) == Published(2, {})
        assert client.llen(KEYS.pending) == 2


def test_duplicates_are_confirmed_with_their_owner(pair: Pair) -> None:
    with pair.main.client() as client:
        Drive(client)(publish_operation(KEYS, batch("memory", keyed=True), clock=elapsed_clock))
        pair.freeze()
        sent = batch(replicated(1, timeout_seconds=SOON), b"c", "x", keyed=True)
        with pytest.raises(NotDurableError):
            Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock))


def test_a_refused_publish_needs_no_confirmation(client: redis.Redis) -> None:
    full = Publishing(KEYS, None, 3600, 120, max_pending_length=1, overload="raise")
    sent = one_call(full, b"b", ["x", "y"], durability=replicated(1, timeout_seconds=SOON))
    with pytest.raises(Exception, match="nothing was stored"):
        Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock))


def test_fsync_is_confirmed_by_servers_that_have_it(own_server: RedisServer) -> None:
    with own_server.client() as client:
        sent = batch(FSYNC)
        if tuple(map(int, client.info("server")["redis_version"].split("."))) < (7, 2):
            with pytest.raises(NotDurableError, match=r"fsync needs Redis 7\.2 or later with appendonly yes"):
                Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock))
        else:
            assert Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock)) == Published(2, {})
        assert client.llen(KEYS.pending) == 2


def test_a_disk_that_is_written_every_second_confirms_too(own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.config_set("appendfsync", "everysec")
        if tuple(map(int, client.info("server")["redis_version"].split("."))) < (7, 2):
            with pytest.raises(NotDurableError, match="WAITAOF"):
                Drive(client)(publish_operation(KEYS, batch(FSYNC), clock=elapsed_clock))
            return
        for number in range(3):  # each begins when the disk has just been written, and waits longest
            sent = replace(batch(FSYNC), id=b"batch-%010d" % number)
            assert Drive(client)(publish_operation(KEYS, sent, clock=elapsed_clock)) == Published(2, {})


def test_fsync_without_a_disk_is_not_confirmed(client: redis.Redis) -> None:
    with pytest.raises(NotDurableError, match="appendonly yes") as caught:
        Drive(client)(publish_operation(KEYS, batch("fsync"), clock=elapsed_clock))
    assert caught.value.published == Published(2, {})
