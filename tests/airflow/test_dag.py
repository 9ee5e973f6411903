"""A DAG of our operators, run by Airflow itself with its metadata in SQLite."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.servers import PasswordServer
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "gate.py"


def run(deployment: Deployment, path: Path, queue_name: str) -> Any:
    with deployment.dags([DAG_FILE]) as dags:
        return dags["gate"].test(run_conf={"path": str(path), "queue": queue_name})


def reports(found: Any) -> list[tuple[str, int, int]]:
    each = [found["publish_file"], found["publish_made"], *found["publish_each"]]
    return [(report["queue"], report["published"], report["duplicates"]) for report in each]


def test_publish_gate_drain(
    airflow_deployment: Deployment,
    password_server: PasswordServer,
    connect: Connect,
    orders: Callable[..., Path],
    queue_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A connection as Airflow's own Redis provider keeps it, with its password.
    connect("orders_redis", conn_type="redis", host="localhost", port=password_server.port, password=PASSWORD)

    done = run(airflow_deployment, orders(25), queue_name)

    found = xcoms(done)
    assert set(states(done).values()) == {"success"}
    assert set(states(done)) == {
        "make",
        "publish_file",
        "publish_made",
        "publish_each[0]",
        "publish_each[1]",
        "gate",
        "drain",
    }
    assert reports(found) == [
        (queue_name, 25, 0),
        (queue_name, 3, 0),
        (f"{queue_name}-0", 3, 0),
        (f"{queue_name}-1", 3, 0),
    ]
    assert found["gate"] == found["gate"] | {"queue": queue_name, "ready": 28, "pending": 28, "fired_by": "depth"}
    expected = [f"acme:{number}" for number in range(1, 26)] + [f"made:{number}" for number in range(3)]
    assert sorted(found["drain"]) == sorted(expected)

    # A field of a task is stored as it was rendered, but of messages only their number.
    rendered = airflow_deployment.rendered(done, "publish_made")
    assert rendered["messages"] == "list of 3"
    assert rendered["queue_name"] == queue_name

    # What the file held, and the password, are in nothing that Airflow keeps or shows.
    shown = airflow_deployment.stored() + "".join(capfd.readouterr()).encode() + json.dumps(found).encode()
    assert queue_name.encode() in shown
    assert b"CANARY" not in shown
    assert PASSWORD.encode() not in shown
    assert json.dumps(PASSWORD)[1:-1].encode() not in shown


def test_a_task_that_fails_midway_fails_the_run_and_says_how_far_it_came(
    airflow_deployment: Deployment,
    password_server: PasswordServer,
    connect: Connect,
    orders: Callable[..., Path],
    queue_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    connect("orders_redis", host="localhost", port=password_server.port, password=PASSWORD)

    done = run(airflow_deployment, orders(25, broken=21), queue_name)

    assert done.state == "failed"
    assert states(done) == states(done) | {
        "publish_file": "failed",
        "publish_made": "success",
        "gate": "upstream_failed",
    }
    shown = "".join(capfd.readouterr()).encode() + airflow_deployment.stored()
    assert b"line 21: not JSON" in shown
    assert b"the 2 batches before it stay published: 20 messages" in shown
    assert b"CANARY" not in shown
    assert PASSWORD.encode() not in shown


def test_dags_of_the_documentation_hand_an_asset_on(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_asset.py"
    file.write_text(snippet("airflow-asset"))

    with airflow_deployment.dags([file]) as dags:
        published = dags["publish_asset_rows"].test()
        drained = dags["drain_asset_rows"].test()

    assert xcoms(published)["publish"]["published"] == 1
    assert xcoms(drained)["drain"]["acked"] == 1
    assert "sluicegate://sluicegate_default/asset-rows" in str(dags["drain_asset_rows"].timetable.asset_condition)
