"""`sluicegate embedded` starts, finds and stops the server of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import find_running, stop_server
from tests.cli.conftest import Call


def test_a_server_is_started_found_and_stopped(call_bare: Call, outside: Path) -> None:
    folder = outside / "data ä"
    assert call_bare("embedded", "status", folder).code == 1
    assert not folder.exists(), "looking makes no folder"
    started = call_bare("embedded", "start", folder, "--idle-seconds", 30, "--json")
    try:
        assert started.code == 0
        assert (started.record["folder"], started.record["running"]) == (str(folder), True)
        with RedisMessageQueue("orders", url=started.record["url"]) as queue:
            assert queue.publish("a") is True
        again = call_bare("embedded", "start", folder, "--json").record
        assert again == call_bare("embedded", "status", folder, "--json").record == started.record
        assert f"process {again['pid']}" in call_bare("embedded", "status", folder).out
        assert call_bare("depth", "orders", "--url", again["url"], "--json").record["depth"]["ready"] == 1
        stopped = call_bare("embedded", "stop", folder)
        assert (stopped.code, stopped.out) == (0, "stopped\n")
    finally:
        stop_server(folder)
    assert call_bare("embedded", "stop", folder, "--json").record == {"folder": str(folder), "stopped": False}
    assert find_running(folder) is None


def test_a_folder_of_another_user_is_refused(call_bare: Call, outside: Path) -> None:
    folder = outside / "open"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    called = call_bare("embedded", "start", folder)
    assert (called.code, called.out) == (2, "")
    assert called.err.startswith("error: ")


@pytest.mark.parametrize("arguments", [("start",), ("restart", "x"), ("start", "x", "--fsync", "never")])
def test_wrong_use_is_one_line(call_bare: Call, arguments: tuple[str, ...]) -> None:
    called = call_bare("embedded", *arguments)
    assert called.code == 2
    assert "Traceback" not in called.err
