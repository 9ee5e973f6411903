"""The commands of `airflow sluicegate`, as Airflow's own parser runs them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.cli import cli_parser

from airflow_provider_sluicegate.cli.definition import get_cli_commands
from sluicegate import RedisMessageQueue
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment
from tests.support.servers import free_port

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_deployment")]

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command and reads its rows."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # restored after the command has set it
    parser = argparse.ArgumentParser()
    cli_parser._add_command(parser.add_subparsers(), get_cli_commands()[0])

    def run(*words: str, output: str = "json") -> Any:
        arguments = parser.parse_args(["sluicegate", *words, "--output", output])
        capsys.readouterr()
        arguments.func(arguments)
        printed = capsys.readouterr().out
        return json.loads(printed) if output == "json" else printed

    return run


def fill(queue: RedisMessageQueue) -> None:
    """Leave a queue with two messages that wait, one in flight and one dead letter."""
    queue.publish_many([{"note": f"CANARY [bold]{number}"} for number in range(4)], headers={"tenant": "CANARY"})
    queue.claim(1).bury(reason="broken", error="CANARY")
    queue.claim(1, heartbeat=False)


def test_airflow_has_the_commands(airflow_deployment: Deployment, queue: RedisMessageQueue) -> None:
    fill(queue)
    command = [str(Path(sys.executable).with_name("airflow")), "sluicegate", "depth", queue.name, "--output", "json"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    from airflow.providers_manager import ProvidersManager

    if not hasattr(ProvidersManager, "cli_command_functions"):  # Airflow 3.1 has none of providers
        assert done.returncode == 2
        return
    (row,) = json.loads(done.stdout)
    assert (row["queue"], row["ready"], row["in_flight"], row["dead"]) == (queue.name, "2", "1", "1")


def test_a_connection_of_airflows_database_is_found(
    airflow_deployment: Deployment, embedded_url: str, queue_name: str, run: Run
) -> None:
    words = ["connections", "add", "stored", "--conn-type", "sluicegate", "--conn-extra"]
    arguments = cli_parser.get_parser().parse_args([*words, json.dumps({"url": embedded_url})])
    arguments.func(arguments)

    (row,) = run("depth", queue_name, "--conn-id", "stored")

    assert row["ready"] == "0"


def test_depth_lists_each_queue(queue: RedisMessageQueue, run: Run) -> None:
    fill(queue)
    queue.pause()

    rows = run("depth", queue.name, f"{queue.name}-none")

    assert [row["queue"] for row in rows] == [queue.name, f"{queue.name}-none"]
    counts = ("ready", "pending", "returned", "delayed", "in_flight", "expired", "dead", "paused")
    assert [rows[0][name] for name in counts] == ["2", "2", "0", "0", "1", "0", "1", "True"]
    assert float(rows[0]["oldest_ready_age_seconds"]) >= 0
    assert rows[1]["oldest_ready_age_seconds"] is None


def test_peek_shows_payloads_only_on_request(queue: RedisMessageQueue, run: Run) -> None:
    fill(queue)

    for state in ("pending", "in_flight", "dead", "returned", "delayed", "completed", "failed"):
        assert "CANARY" not in json.dumps(run("peek", queue.name, "--state", state))
    dead = run("peek", queue.name, "--state", "dead", "--payload")[0]
    assert (dead["reason"], dead["delivery_count"]) == ("broken", "1")
    assert (dead["payload"], dead["error"]) == ('{"note":"CANARY [bold]0"}', "CANARY")
    assert dead["headers"] == {"tenant": "CANARY"}
    assert "CANARY [bold]2" in run("peek", queue.name, "--payload", output="table")
    assert len(run("peek", queue.name, "--count", "1")) == 1
    assert queue.depth().ready == 2


def test_redrive_moves_dead_letters_by_reason_and_limit(queue: RedisMessageQueue, run: Run) -> None:
    queue.publish_many([{"id": number} for number in range(4)])
    queue.claim(3).bury(reason="broken")
    queue.claim(1).bury(reason="other")
    arguments = ("redrive", queue.name, "--reason", "broken", "--limit", "2")

    assert run(*arguments, "--dry-run")[0]["redriven"] == "2"
    assert queue.depth().dead == 4
    assert run(*arguments)[0]["redriven"] == "2"
    assert queue.depth().dead == 2
    assert run("redrive", queue.name, "--older-than-seconds", "3600")[0]["redriven"] == "0"


@pytest.mark.parametrize("answer", ["no", "", None])
def test_purge_asks_first(
    queue: RedisMessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        if answer is None:
            raise EOFError
        return answer

    fill(queue)
    monkeypatch.setattr("builtins.input", ask)

    with pytest.raises(SystemExit, match="Nothing was deleted"):
        run("purge", queue.name, "--state", "dead", "--state", "pending")

    assert asked == [f"Delete 1 dead, 2 pending of queue {queue.name!r}? Write yes: "]
    assert (queue.depth().dead, queue.depth().pending) == (1, 2)
    monkeypatch.setattr("builtins.input", lambda text: "yes")
    assert [row["deleted"] for row in run("purge", queue.name, "--state", "dead")] == ["1"]
    assert (queue.depth().dead, queue.depth().pending) == (0, 2)


def test_purge_asks_nothing_with_yes_and_deletes_nothing_in_a_dry_run(
    queue: RedisMessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", pytest.fail)
    fill(queue)

    rows = run("purge", queue.name, "--everything", "--dry-run")
    assert {row["state"]: row["deleted"] for row in rows if row["deleted"] != "0"} == {"pending": "2", "dead": "1"}
    assert queue.depth().ready == 2
    run("purge", queue.name, "--everything", "--yes")
    assert (queue.depth().ready, queue.depth().dead, queue.depth().in_flight) == (0, 0, 1)


def test_pause_and_resume_say_what_they_changed(queue: RedisMessageQueue, run: Run) -> None:
    assert run("pause", queue.name)[0] == {"queue": queue.name, "paused": "True", "changed": "True"}
    assert queue.depth().paused
    assert run("pause", queue.name)[0]["changed"] == "False"
    assert run("resume", queue.name)[0] == {"queue": queue.name, "paused": "False", "changed": "True"}
    assert not queue.depth().paused


def test_test_connection_describes_the_server(connect: Connect, embedded_url: str, run: Run) -> None:
    connect("cache", extra={"url": embedded_url})

    (row,) = run("test-connection", "--conn-id", "cache")

    assert (row["connection"], row["works"]) == ("cache", "True")
    assert "answers and runs the queue's scripts" in row["server"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["depth", "q", "--conn-id", "nowhere"], "there is no connection 'nowhere'; add it"),
        (["depth", " "], "queue name is blank"),
        (["peek", "q", "--state", "lost"], "lost"),
        (["peek", "q", "--count", "0"], "count"),
        (["redrive", "q", "--limit", "0"], "limit must be"),
        (["purge", "q"], "give either state, one or more of pending"),
        (["purge", "q", "--state", "in_flight"], "not 'in_flight'; nothing was deleted"),
        (["purge", "q", "--state", "dead", "--everything"], "give either state"),
    ],
)
@pytest.mark.usefixtures("queue")
def test_what_cannot_work_ends_with_the_reason(words: list[str], reason: str, run: Run) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words)

    assert reason in str(ended.value)


@pytest.mark.parametrize("command", ["depth", "pause", "test-connection"])
def test_a_redis_that_is_away_is_named(connect: Connect, run: Run, command: str) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)
    words = [command] if command == "test-connection" else [command, "orders"]

    with pytest.raises(SystemExit) as ended:
        run(*words)

    assert f"localhost:{port}" in str(ended.value)
    assert PASSWORD not in str(ended.value)


def test_the_definition_loads_neither_redis_nor_the_commands() -> None:
    code = "import sys; from airflow_provider_sluicegate.cli.definition import get_cli_commands; get_cli_commands()"
    check = "print([name for name in ('redis', 'airflow_provider_sluicegate.cli.commands') if name in sys.modules])"

    printed = subprocess.check_output([sys.executable, "-c", f"{code}\n{check}"], text=True)

    assert printed.splitlines()[-1] == "[]"
