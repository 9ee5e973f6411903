"""A primary that dies with calls in its hands, and what Spark had to do again because of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import redis

from tests.spark.faults.blocking import WORKER_SECONDS
from tests.support.topologies import ClusterServers, SentinelServers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_MS = 120_000


@dataclass(frozen=True)
class Failover:
    """The primary of a key dies while it executes calls; one that nobody asks is replaced unnoticed.

    A client finds a connection that was closed while it was idle, and opens another one: no call would fail.
    """

    topology: SentinelServers | ClusterServers
    key: bytes

    def pause(self) -> None:
        """Pause the primary: it accepts calls without an answer, and the replica has all that was answered before."""
        with self.topology.primary(self.key) as primary:
            primary.execute_command("CLIENT", "PAUSE", _PAUSE_MS, "WRITE")
            port = primary.get_connection_kwargs()["port"]
            written = primary.info("replication")["master_repl_offset"]
        followers = 0
        for server in self.topology.servers:
            with server.client() as client:
                reported = client.info("replication")
                if reported["role"] == "slave" and reported["master_port"] == port:
                    followers += 1
                    wait_until(partial(_has, client, written), "the replica has what was written")
        assert followers == 1

    def crash(self, calls: int) -> None:
        """Kill the primary once that many calls wait for its answer; return when its replica has become the primary.

        It stays away, so that it cannot report which server has taken its place.
        """
        with self.topology.primary(self.key) as primary:
            wait_until(lambda: _in_hand(primary) >= calls, "calls wait for their answers", WORKER_SECONDS)
            port = primary.get_connection_kwargs()["port"]
        (server,) = (each for each in self.topology.servers if each.port == port)
        server.kill()
        wait_until(lambda: self._primary_port() not in (None, port), "the replica has become the primary")

    def restore(self) -> None:
        """After a crash: the old primary follows the new one, and all is empty."""
        for server in self.topology.servers:
            if not server.runs:
                server.start()
                with server.client() as client:
                    if isinstance(self.topology, SentinelServers):
                        client.replicaof("127.0.0.1", str(self._primary_port()))
                    wait_until(partial(_follows, client), "it follows the new primary")
        for server in self.topology.servers:
            with server.client() as client:
                client.client_unpause()  # a test that failed may have left it so
                wait_until(partial(_is_settled, client), "it is a primary, or in step with one")
                if client.role()[0] == b"master":
                    client.flushall()

    def _primary_port(self) -> int | None:
        if isinstance(self.topology, SentinelServers):
            return self.topology.sentinels[0].primary_port()
        owner = self.topology.owner(self.key)
        return None if owner is None else owner.port


def _follows(client: redis.Redis) -> bool:
    return client.info("replication").get("master_link_status") == "up"


def _has(replica: redis.Redis, written: int) -> bool:
    return int(replica.info("replication")["slave_repl_offset"]) >= written


def _in_hand(primary: redis.Redis) -> int:
    """Scripts that the server was asked to run and holds back."""
    return sum("b" in reported["flags"] and reported["cmd"] == "evalsha" for reported in primary.client_list())


def _is_settled(client: redis.Redis) -> bool:
    reported = client.info("replication")
    return reported["role"] == "master" or reported["master_link_status"] == "up"


@contextmanager
def no_task_fails(spark: SparkSession) -> Iterator[None]:
    """Spark repeats a task that failed, and so hides that a call was not repeated: no task of the block's jobs may.

    Not for a streaming query, whose jobs are in a group of its own.
    """
    tracker = spark.sparkContext.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(None))
    yield
    jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup(None)) - earlier]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    failed = [stage.numFailedTasks for stage in stages if stage is not None]
    assert failed, "there was a job"
    assert sum(failed) == 0, f"{sum(failed)} tasks failed and were repeated"
