"""`submit.py` without a session: what it takes, what it refuses, what it says and how it ends."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluicegate import QueueSpec, RedisMessageQueue, RedisStreamQueue
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.spark import DrainSummary, HandlerFailure, PartitionSummary, submit

URL = "redis://localhost:6379/0?password_env=QUEUE_PASSWORD"
PLACE_URL = "redis+sluicegate://localhost:6379/0?password_env=QUEUE_PASSWORD&stream=events&group=billing"
HANDLER = "json:loads"


@pytest.fixture
def drained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RedisMessageQueue, Any, dict[str, Any]]]:
    """Return what would have been drained, instead of a session."""
    calls: list[tuple[RedisMessageQueue, Any, dict[str, Any]]] = []

    def drain(queue: RedisMessageQueue, process: Any, options: dict[str, Any]) -> DrainSummary:
        calls.append((queue, process, options))
        return DrainSummary(run_id="r", queue=queue.name, partitions=(), seconds=0.5)

    monkeypatch.setattr(submit, "_drain", drain)
    return calls


def test_the_application_is_a_file_that_runs_as_a_program() -> None:
    path = submit.application()

    done = subprocess.run([sys.executable, path, "--help"], text=True, capture_output=True, check=True)

    assert Path(path).name == "submit.py"
    assert "MODULE:FUNCTION" in done.stdout


def test_modules_beside_the_file_hide_none_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python puts the folder of a program first, and ours has a `context` and a `summary`."""
    (tmp_path / "context.py").write_text("def handle(batch): ...\n")
    monkeypatch.setattr(sys, "argv", ["submit.py", "--url", URL, "--queue", "q", "--process", "context:nothing"])
    monkeypatch.setattr(sys, "path", [str(Path(submit.application()).parent), str(tmp_path), *sys.path])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(submit.application(), run_name="__main__")

    assert ended.value.code == 2
    assert Path(str(sys.modules.pop("context").__file__)).parent == tmp_path


def test_arguments_carry_the_queue_and_every_option(drained: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    queue = RedisMessageQueue("orders", url=URL, max_delivery_count=4)
    options: dict[str, Any] = {
        "partitions": 3,
        "batch_size": 50,
        "lease_seconds": 12.5,
        "run_id": "dag/task/run/-1",
        "remember_empty": False,
        "batch_format": "arrow",
        "schema": "n bigint, t string",
        "mode": "PERMISSIVE",
        "column_name_of_corrupt_record": "t",
        "until": 700,
        "deadline_seconds": 60.0,
        "on_failures": "return",
    }

    listed = submit.arguments(
        queue,
        HANDLER,
        **options,
    )
    code = submit.main(listed)

    [(travelled, process, given)] = drained
    assert (code, travelled.spec(), process, given) == (0, queue.spec(), json.loads, options)
    assert json.loads(capsys.readouterr().out)["queue"] == "orders"
    assert "QUEUE_PASSWORD" in " ".join(listed)


def test_a_url_and_a_name_do_as_well_and_what_is_not_given_keeps_its_default(drained: list[Any]) -> None:
    assert submit.main(["--url", URL, "--queue", "orders", "--process", HANDLER, "--until", "deadline"]) == 0

    [(queue, _, options)] = drained
    assert (queue.name, options) == ("orders", {"until": "deadline"})


@pytest.mark.parametrize(
    "place", [["--url", PLACE_URL], ["--url", URL, "--stream", "events", "--group", "billing"], "group"]
)
def test_a_group_of_a_stream_is_named_by_its_url_its_names_or_its_spec(
    place: list[str] | str, drained: list[Any]
) -> None:
    if isinstance(place, str):
        place = submit.arguments(RedisStreamQueue("events", url=URL).group("billing"), HANDLER)[:2]

    assert submit.main([*place, "--process", HANDLER]) == 0

    [(group, _, _)] = drained
    assert group.spec() == QueueSpec("events", URL, {}, "group", "billing")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "redis://:hunter2@localhost", "--queue", "q", "--process", HANDLER], "password"),
        (["--url", URL, "--process", HANDLER], "--queue"),
        (["--url", URL, "--queue", "q", "--stream", "s", "--process", HANDLER], "exactly one of queue and stream"),
        (["--url", URL, "--stream", "s", "--process", HANDLER], "give --group"),
        (["--url", URL, "--queue", "q", "--group", "g", "--process", HANDLER], "'q' is a queue; give stream='q'"),
        (
            ["--url", PLACE_URL, "--group", "h", "--process", HANDLER],
            "--url names what to drain already",
        ),
        (["--spec", "{}", "--queue", "q", "--process", HANDLER], "--spec names what to drain already; leave --queue"),
        (["--url", URL, "--queue", "q", "--process", "json"], "'module:function'"),
        (["--url", URL, "--queue", "q", "--process", "json:nothing"], "nothing"),
        (["--url", URL, "--queue", "q", "--process", "no_such_module:f"], "no_such_module"),
        (
            ["--url", URL, "--queue", "q", "--process", HANDLER, "--mode", "BURY"],
            "mode BURY is for payloads that do not fit a schema, and there is none",
        ),
        (["--spec", "{}", "--process", HANDLER], "a queue spec has ["),
        (["--spec", "orders", "--process", HANDLER], "a queue spec is JSON"),
        (["--spec", "[]", "--process", HANDLER], "a queue spec is a JSON object"),
    ],
)
def test_what_cannot_work_is_refused_before_a_session(
    arguments: list[str], words: str, drained: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main(arguments) == 2

    reported = capsys.readouterr()
    assert words in reported.err
    assert "hunter2" not in reported.err + reported.out
    assert not drained


@pytest.mark.parametrize("arguments", [["--url", URL], ["--spec", "{}", "--url", URL, "--process", "a:b"]])
def test_arguments_that_nobody_can_read_end_as_argparse_ends(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        submit.main(arguments)
    assert ended.value.code == 2


def test_arguments_refuses_what_no_text_carries() -> None:
    queue = RedisMessageQueue("orders", url=URL)
    with pytest.raises(TypeError, match="progress"):
        submit.arguments(queue, HANDLER, progress=True)
    with pytest.raises(TypeError, match="schema"):
        submit.arguments(queue, HANDLER, schema=object())
    with pytest.raises(ConfigurationError, match="password"):
        submit.arguments(RedisMessageQueue("orders", url="redis://:hunter2@localhost"), HANDLER)
    with pytest.raises(ConfigurationError, match=r"'module:function', not 'json\.loads'"):
        submit.arguments(queue, "json.loads")


def test_messages_that_failed_give_an_exit_code_of_their_own_and_the_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = HandlerFailure(0, 0, 1, ("id",), False, "ValueError", "seven", "job.py:1 in f")
    partition = PartitionSummary(0, 1, 2, 1, 1, 0, 0, 0, "empty", 0.1, failures=(failure,))
    summary = DrainSummary(run_id="r", queue="orders", partitions=(partition,), seconds=0.5)

    def drain(*_: object) -> DrainSummary:
        raise DrainFailedError("the handler failed", summary=summary)

    monkeypatch.setattr(submit, "_drain", drain)

    assert submit.main(["--url", URL, "--queue", "orders", "--process", HANDLER]) == 3
    reported = capsys.readouterr()
    assert (json.loads(reported.out)["acked"], json.loads(reported.out)["failures"][0]["error"]) == (1, "seven")
    assert "the handler failed" in reported.err


def failing(*_: object) -> DrainSummary:
    """Fail as a drain whose handler failed on one of two messages."""
    failure = HandlerFailure(0, 0, 1, ("id",), False, "ValueError", "SEVEN", "job.py:1 in f")
    partition = PartitionSummary(0, 1, 2, 1, 1, 0, 0, 0, "empty", 0.1, failures=(failure,), failed=1)
    raise DrainFailedError(
        "the handler failed", summary=DrainSummary(run_id="r", queue="orders", partitions=(partition,), seconds=0.5)
    )


def test_a_file_gets_the_summary_instead_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(submit, "_drain", failing)
    file = tmp_path / "summary.json"
    queue = RedisMessageQueue("orders", url=URL)

    code = submit.main(submit.arguments(queue, HANDLER, summary_file=str(file)))

    reported = capsys.readouterr()
    assert (code, reported.out) == (3, "")
    assert "SEVEN" not in reported.err
    outcome = submit.read_outcome(file)
    assert outcome.refused is None
    assert outcome.summary is not None
    with pytest.raises(DrainFailedError) as failed:
        failing()
    assert outcome.summary == failed.value.summary


def test_without_the_folder_of_the_file_the_output_has_the_summary_without_texts_of_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On another machine the folder does not exist, and the output may be kept by whoever submitted the drain."""
    monkeypatch.setattr(submit, "_drain", failing)
    file = tmp_path / "elsewhere" / "summary.json"
    queue = RedisMessageQueue("orders", url=URL)

    assert submit.main(submit.arguments(queue, HANDLER, summary_file=str(file))) == 3

    reported = capsys.readouterr()
    assert json.loads(reported.out)["failures"][0]["message_ids"] == ["id"]
    assert "SEVEN" not in reported.out + reported.err
    assert submit.read_outcome(file) == submit.Outcome()


def test_a_file_says_why_the_driver_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    queue = RedisMessageQueue("orders", url=URL)

    assert submit.main(submit.arguments(queue, "json:nothing", summary_file=str(file))) == 2

    outcome = submit.read_outcome(file)
    assert outcome.summary is None
    assert "module 'json' has no function 'nothing'" in str(outcome.refused)
    assert str(outcome.refused) in capsys.readouterr().err


def test_a_value_may_begin_with_a_dash() -> None:
    queue = RedisMessageQueue("orders", url=URL)

    arguments = submit.arguments(queue, HANDLER, run_id="-nightly", schema="-")

    assert submit._parser().parse_args(arguments).run_id == "-nightly"


def test_a_mode_is_given_in_any_case() -> None:
    queue = RedisMessageQueue("orders", url=URL)

    arguments = submit.arguments(queue, HANDLER, schema="n bigint", mode="bury")

    assert submit._parser().parse_args(arguments).mode == "BURY"


@pytest.mark.parametrize(
    "option",
    [
        {"partitions": 2.5},
        {"until": "full"},
        {"lease_seconds": "soon"},
        {"remember_empty": "perhaps"},
        {"on_failures": "ignore"},
        {"mode": "DROP"},
        {"column_name_of_corrupt_record": "t", "schema": "t string"},
    ],
)
def test_arguments_refuses_what_the_program_would_and_ends_no_process(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option)).replace("_", "[-_]")):
        submit.arguments(RedisMessageQueue("orders", url=URL), HANDLER, **option)
