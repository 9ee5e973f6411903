from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import stop_server
from tests.airflow.deployment import Deployment, choose_home
from tests.airflow.instance import Instance
from tests.airflow.servers import PasswordServer
from tests.support.project import ROOT

# This comes before the test modules are collected, because they import Airflow.
HOME = choose_home()

# Airflow below 3.3 does not say when an event is stored, so the trigger that needs it cannot be imported there. Nor are
# its tasks known to make spans.
collect_ignore = (
    [] if find_spec("airflow.triggers.shared_stream") else ["test_delivery_trigger.py", "test_tracing_tasks.py"]
)

# It has every character that has a meaning in a URL.
PASSWORD = "s3cr3t:/@?#&=%41+ word"

Connect = Callable[..., str]


@pytest.fixture(scope="session")
def airflow_deployment() -> Deployment:
    """Return the Airflow deployment of this test run, with its tables."""
    deployment = Deployment(HOME)
    deployment.migrate()
    return deployment


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an embedded server for all tests; each uses a queue of its own."""
    folder = tmp_path_factory.mktemp("embedded")
    yield f"embedded://{folder}"
    stop_server(folder)


@pytest.fixture(scope="session")
def password_server() -> Iterator[PasswordServer]:
    """Yield a server behind host, port and password for all tests."""
    server = PasswordServer(PASSWORD)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Define an Airflow connection for this test and return its id."""

    def define(conn_id: str = "sluicegate_default", *, conn_type: str = "sluicegate", **fields: Any) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))
        return conn_id

    return define


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test has, because they share a server."""
    return re.sub(r"\W+", "-", f"{request.node.path.stem}-{request.node.name}")


@pytest.fixture
def queue(embedded_url: str, connect: Connect, queue_name: str) -> Iterator[RedisMessageQueue]:
    """Yield a queue of this test on the embedded server, which is the default connection too."""
    connect(extra={"url": embedded_url})
    queue = RedisMessageQueue(queue_name, url=embedded_url)
    yield queue
    queue.close()


@pytest.fixture
def orders(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of orders, one JSON object per line; `broken` replaces the line of that number."""

    def write(count: int, *, broken: int | None = None, name: str = "orders.jsonl") -> Path:
        lines = [json.dumps({"tenant": "acme", "order_id": number, "note": "CANARY"}) for number in range(1, count + 1)]
        if broken is not None:
            lines[broken - 1] = '{"tenant": "acme", "note": "CANARY", '
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def instance() -> Instance:
    """Return a task instance for `execute`."""
    return Instance()


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let Spark sessions of this process be small and local; the JVM starts with the first of them and ends here."""
    from tests.spark.session import end_gateway  # Spark is not installed beside every version of Airflow
    from tests.spark.shipping import spark_defaults

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(spark_defaults(folder)))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))  # the handlers that are given by their names
        yield
    end_gateway()
