"""`sluicegate exporter` and `sluicegate ui` serve what their rooms make, until a signal ends them."""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluicegate import RedisMessageQueue
from tests.cli.conftest import Call
from tests.support.servers import free_port
from tests.support.waiting import wait_until

# As the installed program does: -P keeps the working folder out of sys.path.
PROGRAM = (sys.executable, "-P", "-c", "import sys; from sluicegate.cli.main import main; sys.exit(main())")


@contextmanager
def served(url: str, folder: Path, *arguments: object, **variables: str) -> Iterator[dict[str, Any]]:
    """Run a command that serves, and yield what it printed first."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "SLUICEGATE_URL": url, **variables},
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline() or "{}")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (0, 143)


def fetch(url: str, **headers: str) -> tuple[int, str]:
    """Return status and text of an answer, 0 where nothing listens yet."""
    try:
        answer = httpx.get(url, headers=headers, timeout=10)
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.text


def test_the_exporter_serves_the_places_that_are_named(outside: Path, url: str, orders: RedisMessageQueue) -> None:
    orders.publish_many(["a", "b"])
    RedisMessageQueue("bills", url=url).publish("c")
    with served(url, outside, "exporter", "orders", "--port", 0) as printed:
        status, text = fetch(printed["url"])
    assert status == 200
    assert 'name="orders"' in text or 'queue="orders"' in text
    assert "bills" not in text


@pytest.mark.parametrize(
    "variables", [{}, pytest.param({"SLUICEGATE_TOKEN": "a token that is long enough"}, marks=pytest.mark.full)]
)
def test_the_page_asks_for_the_token(
    outside: Path, url: str, orders: RedisMessageQueue, variables: dict[str, str]
) -> None:
    orders.publish("a")
    port = free_port()
    with served(url, outside, "ui", "--port", port, **variables) as printed:
        assert ("token" in printed) is not bool(variables), "a token of the user is not printed"
        token = variables.get("SLUICEGATE_TOKEN") or printed["token"]
        where = f"http://127.0.0.1:{port}/api/overview"
        wait_until(lambda: fetch(where)[0] == 401, "the page answers, and refuses", every_seconds=0.05)
        status, text = fetch(where, Authorization=f"Bearer {token}")
    assert status == 200
    assert [row["name"] for row in json.loads(text)["places"]] == ["orders"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[web]\ntitel = "x"\n', "titel"),
        ('[web]\nmasks = "x"\n', "web.masks must be a list"),
        ('[web]\ntoken_env = "NOT_SET_ANYWHERE"\n', "NOT_SET_ANYWHERE"),
    ],
)
def test_a_wrong_setting_of_the_page_is_refused(call: Call, outside: Path, text: str, words: str) -> None:
    outside.joinpath("sluicegate.toml").write_text(text)
    called = call("ui", "--port", free_port())
    assert (called.code, words in called.err) == (2, True)


def test_a_missing_library_is_named_with_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("sluicegate.metrics", "prometheus_client"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    called = call("exporter", "--port", 0)
    assert (called.code, "pip install 'sluicegate[metrics]'" in called.err) == (2, True)


@pytest.mark.parametrize("command", ["exporter", "ui"])
def test_a_port_in_use_is_an_error_before_anything_is_printed(call: Call, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        called = call(command, "--port", port)
    assert (called.code, called.out) == (2, "")
    assert f"cannot listen at 127.0.0.1 port {port} (Address already in use)" in called.err


def test_a_certificate_that_does_not_exist_is_named(call: Call) -> None:
    called = call("ui", "--port", free_port(), "--certificate", "none.pem")
    assert (called.code, called.out) == (2, "")
    assert "there is no file 'none.pem'" in called.err


def test_the_exporter_has_the_port_that_prometheus_is_configured_for() -> None:
    from sluicegate.cli.commands.exporter import exporter
    from sluicegate.metrics import DEFAULT_PORT

    assert inspect.signature(exporter).parameters["port"].default == DEFAULT_PORT
