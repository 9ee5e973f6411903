"""The depth of a queue as gauges of Airflow: real StatsD packets, sent by Airflow's own logger."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.stats import emit_depth
from sluicegate import RedisMessageQueue
from tests.airflow.metrics import Client, Server, sending
from tests.support.project import ROOT
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a socket for StatsD packets."""
    server = Server()
    yield server
    server.close()


def fill(queue: RedisMessageQueue) -> None:
    """Leave a queue with three ready messages, two in flight and a dead letter."""
    queue.publish_many([{"note": "CANARY"}] * 6)
    queue.claim(1).bury(error="CANARY")
    queue.claim(2, heartbeat=False)


def test_each_gauge_is_sent_with_and_without_the_queue_in_its_name(queue: RedisMessageQueue, server: Server) -> None:
    fill(queue)
    depth = queue.depth()

    with sending(compat.stats(), Client(server.port)):
        emit_depth("orders.eu:1", depth)

    age = depth.oldest_ready_age_seconds
    assert age is not None
    assert server.read(8) == {
        "airflow.sluicegate.queue.ready": 3,
        "airflow.sluicegate.queue.ready.orders__eu_1": 3,
        "airflow.sluicegate.queue.in_flight": 2,
        "airflow.sluicegate.queue.in_flight.orders__eu_1": 2,
        "airflow.sluicegate.queue.dead": 1,
        "airflow.sluicegate.queue.dead.orders__eu_1": 1,
        "airflow.sluicegate.queue.oldest_ready_age_seconds": age,
        "airflow.sluicegate.queue.oldest_ready_age_seconds.orders__eu_1": age,
    }
    assert server.is_empty()


def test_a_queue_without_messages_has_the_age_zero(queue: RedisMessageQueue, server: Server) -> None:
    with sending(compat.stats(), Client(server.port)):
        emit_depth(queue.name, queue.depth())

    assert set(server.read(8).values()) == {0}


@pytest.mark.parametrize("name", ["orders.eu", "a,b=c", "größe x|y:z\n", "x" * 500])
def test_the_tag_survives_a_statsd_that_puts_tags_into_the_name(
    queue: RedisMessageQueue, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")

    with sending(compat.stats(), Client(server.port), influxdb=True):
        emit_depth(name, queue.depth())

    tags = {found.partition(",")[2] for found in server.read(8)}
    expected = {"orders.eu": "orders.eu", "a,b=c": "a_b_c", "größe x|y:z\n": "gr__e_x_y_z_"}.get(name, "x" * 150)
    assert tags == {"", f"queue={expected}"}


def test_legacy_names_can_be_turned_off(
    queue: RedisMessageQueue, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__LEGACY_NAMES_ON", "False")
    if not compat.has_legacy_metric_names():
        with sending(compat.stats(), Client(server.port)):
            emit_depth("orders", queue.depth())
        assert {name.rpartition("queue.")[2] for name in server.read(4)} == {
            "ready", "in_flight", "dead", "oldest_ready_age_seconds",
        }  # fmt: skip
        assert server.is_empty()


def test_metrics_that_fail_are_logged_and_raise_nothing(
    queue: RedisMessageQueue, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreachable(Client):
        def gauge(self, *arguments: object) -> None:
            raise OSError("network is unreachable")

    with caplog.at_level(logging.WARNING), sending(compat.stats(), Unreachable(server.port)):
        emit_depth("orders", queue.depth())

    (record,) = caplog.records
    assert record.getMessage() == (
        "queue 'orders': its depth could not be reported to Airflow's metrics: network is unreachable"
    )


@pytest.mark.full  # the gauges themselves are tried in the quick lane
def test_a_trigger_sends_by_what_the_triggerer_configures(server: Server) -> None:
    # The process of the triggers is a fork of the triggerer, which has imported and configured this.
    script = """
        import sys
        from airflow.jobs import triggerer_job_runner
        from airflow_provider_sluicegate.stats import emit_depth
        from sluicegate import Depth
        from tests.airflow.metrics import Client, sending

        stats = getattr(triggerer_job_runner, "Stats", None) or triggerer_job_runner.stats.Stats
        counts = dict.fromkeys(("pending", "returned", "delayed", "due", "leases", "expired"), 0)
        totals = dict(published_total=7, claimed_total=3, paused=False, oldest_ready_age_seconds=1.5)
        with sending(stats, Client(int(sys.argv[1]))):
            emit_depth("orders", Depth(ready=4, in_flight=2, dead=1, **counts, **totals))
    """

    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(server.port)], cwd=ROOT, check=True)

    found = server.read(8)
    assert (found["airflow.sluicegate.queue.ready"], found["airflow.sluicegate.queue.dead.orders"]) == (4, 1)


def test_the_task_of_the_documentation_reports_a_depth(queue: RedisMessageQueue, server: Server) -> None:
    names: dict[str, Any] = {}
    exec(compile(snippet("airflow-metrics"), "airflow-metrics", "exec"), names)  # noqa: S102
    queue.publish({"id": 1})

    with sending(compat.stats(), Client(server.port)):
        names["report"].function(queue.name)

    assert server.read(8)["airflow.sluicegate.queue.ready"] == 1
