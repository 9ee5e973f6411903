"""Two speculative attempts of one task live at the same time, on a standalone cluster with two hosts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.spark.faults.processes import DriverProcess
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish, seen_by
from tests.spark.faults.standalone import StandaloneCluster
from tests.support import state
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

SESSION_SECONDS = 240.0
PROGRAM = """
import json, os, signal, sys, uuid
from pathlib import Path
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.spark import drain
from tests.support import waiting
from tests.support.waiting import wait_until

cloudpickle.register_pickle_by_value(waiting)  # the cluster's workers cannot import it

master, spec, sink, told, what = sys.argv[1:]
sink, told = Path(sink), Path(told)

def note(name, **values):
    with (told / name).open("a") as file:
        file.write(json.dumps(dict(values, pid=os.getpid())) + "\\n")

class Process:
    def __call__(self, batch, ctx):
        note("calls", lease_id=ctx.lease_id, attempt=ctx.attempt)
        if ctx.partition != 0:  # it may start first, and would leave nothing to the other
            wait_until((told / "slow").exists, "the other partition has its lease", 240)
        if ctx.lease_id == "speculated/0/0" and not (told / "slow").exists():
            (told / "slow.new").write_text(json.dumps({"pid": os.getpid(), "ids": [message.id for message in batch]}))
            (told / "slow.new").rename(told / "slow")
            if what == "frozen":
                os.kill(os.getpid(), signal.SIGSTOP)
            wait_until((told / "go on").exists, "the test lets it continue", 240)
        file = sink / f"{uuid.uuid4().hex}.new"
        file.write_text(json.dumps([(message.id, message.json()["n"]) for message in batch]))
        file.rename(file.with_suffix(".json"))

    def __setstate__(self, values):
        from sluicegate.gateway import RedisGateway

        plain = getattr(RedisGateway.execute, "plain", RedisGateway.execute)

        def execute(gateway, call, **options):
            if call.script.name == "claim":
                note("claims", key=call.keys[0].decode())
            return plain(gateway, call, **options)

        execute.plain = plain
        RedisGateway.execute = execute

    def __reduce__(self):
        return object.__new__, (Process,), {"watch": True}

conf = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
spark = SparkSession.builder.master(master).config(map=conf).getOrCreate()
queue = RedisMessageQueue.from_spec(QueueSpec.from_json(spec))
summary = drain(spark, queue, Process(), partitions=2, batch_size=20, lease_seconds=6, run_id="speculated")
(told / "summary").write_text(json.dumps(summary.to_dict()))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.mark.parametrize("what", ["slow", "frozen"])
def test_a_speculative_attempt_waits_for_a_living_consumer_and_replaces_a_silent_one(
    cluster: StandaloneCluster,
    queue: RedisMessageQueue,
    client: redis.Redis,
    sink: Sink,
    tmp_path: Path,
    what: str,
) -> None:
    truth = publish(queue, 100)
    arguments = (cluster.url, queue.spec().to_json(), str(sink.folder), str(tmp_path), what)
    driver = DriverProcess(PROGRAM, *arguments, folder=tmp_path)

    def second_attempt_asks() -> bool:
        driver.check_alive()
        if not (tmp_path / "slow").exists():
            return False
        holder = json.loads((tmp_path / "slow").read_text())["pid"]
        return any(
            claim["key"].endswith(":speculated/0/0") and claim["pid"] != holder
            for claim in seen_by(tmp_path / "claims")
        )

    try:
        wait_until(second_attempt_asks, "a second attempt asks for the lease of the first", SESSION_SECONDS)
        holder = json.loads((tmp_path / "slow").read_text())
        if what == "slow":
            assert queue.depth().leases == 1
            (tmp_path / "go on").touch()
        driver.finish(SESSION_SECONDS)
    finally:
        if (tmp_path / "slow").exists():
            with suppress(ProcessLookupError):
                os.kill(json.loads((tmp_path / "slow").read_text())["pid"], signal.SIGCONT)
        driver.kill()

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert sink.duplicates() == {}
    worked = [call for call in seen_by(tmp_path / "calls") if call["lease_id"] == "speculated/0/0"]
    if what == "slow":
        assert [call["pid"] for call in worked] == [holder["pid"]], "the second attempt did no work"
        assert state.counters(client, queue.name).get("taken_over", 0) == 0
    else:
        assert {call["pid"] for call in worked} > {holder["pid"]}, "the second attempt did the work"
    assert json.loads((tmp_path / "summary").read_text())["acked"] == (len(truth))
