"""The frame of the command line: settings, exit codes, errors in one line, help, and how a command ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.cli.registry import COMMANDS
from sluicegate.cli.text import without_secrets
from tests.cli.conftest import Call
from tests.support.servers import free_port

PROGRAM = [sys.executable, "-c", "import sys; from sluicegate.cli.main import main; sys.exit(main())"]


def test_the_overview_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys\nfrom sluicegate.cli.main import run\ncode = run(['--help'])\n"
        "loaded = {'redis', 'rich', *(name for name in sys.modules if name.startswith('sluicegate.cli.commands.'))}\n"
        "print(sorted(loaded & set(sys.modules)), code)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert printed.splitlines()[-1] == "[] 0"
    for listed in COMMANDS:
        assert f"  {listed.name} " in printed
        assert listed.help.endswith(".")


def test_counting_a_queue_loads_nothing_that_it_does_not_need(url: str) -> None:
    code = (
        f"import sys\nfrom sluicegate.cli.main import run\ncode = run(['depth', 'orders', '--url', {url!r}])\n"
        "print(sorted({'pydantic', 'rich', 'sluicegate.queue', 'sluicegate.report'} & set(sys.modules)), code)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[] 0"


@pytest.mark.parametrize("name", [listed.name for listed in COMMANDS])
def test_every_command_has_help_and_the_common_options(call_bare: Call, name: str) -> None:
    shown = call_bare(name, "--help")
    listed = shown.out

    assert shown.code == 0
    assert f"Usage: sluicegate {name} " in listed
    if "\nCommands:\n" in listed:
        first = listed.partition("\nCommands:\n")[2].split()[0]
        listed = call_bare(name, first, "--help").out
    for option in ("--url URL", "--config FILE", "--json"):
        assert option in listed


def test_without_a_command_the_overview_is_printed_to_stderr(call_bare: Call) -> None:
    shown = call_bare()

    assert (shown.code, shown.out) == (2, "")
    assert "Usage: sluicegate [OPTIONS] COMMAND" in shown.err


def test_the_version_is_that_of_the_package(call_bare: Call) -> None:
    import sluicegate

    assert call_bare("--version").out == f"sluicegate {sluicegate.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dept"], "error: No such command 'dept'. Did you mean 'depth'?\nSee `sluicegate --help`.\n"),
        (["depth", "--jsn"], "error: No such option: --jsn"),
        (["depth", "orders"], "error: no Redis is named; give --url redis://host:6379/0, set SLUICEGATE_URL, or"),
        (["depth", " ", "--url", "redis://x"], "error: name is blank"),
        (["depth", "redis://x/0", "--url", "redis://x"], "error: PLACE is a name or the URL of a place, such as "),
        (["depth", "a", "--jobs", "--stream", "--url", "redis://x"], "error: --jobs names a queue of jobs, and "),
        (["depth", "a", "--stream", "--url", "redis://x"], "error: stream 'a' is consumed by its groups; add --group"),
        (["depth", "a", "--config", "none.toml"], "error: there is no configuration file 'none.toml'\n"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(call_bare: Call, arguments: list[str], message: str) -> None:
    failed = call_bare(*arguments)

    assert (failed.code, failed.out) == (2, "")
    assert failed.err.startswith(message)


def test_an_error_is_json_with_the_option_json(call_bare: Call) -> None:
    failed = call_bare("depth", "orders", "--json")

    assert (failed.code, failed.out) == (2, "")
    error = json.loads(failed.err)["error"]
    assert list(error) == ["type", "message", "hint"]
    assert error["type"] == "ConfigurationError"
    assert "/troubleshooting/#configurationerror" in error["hint"]


def test_redis_that_does_not_answer_is_exit_code_3_without_the_password(call_bare: Call) -> None:
    failed = call_bare("depth", "orders", "--url", f"redis://:hunter2@127.0.0.1:{free_port()}/0")

    assert failed.code == 3
    assert "cannot be reached" in failed.err
    error, link = failed.err.splitlines()
    assert "https://" not in error
    assert link == "See https://sluicegate.github.io/sluicegate/troubleshooting/#redisunavailableerror"
    assert "hunter2" not in failed.err


@pytest.mark.parametrize(
    "argument",
    [
        "redis+sluicegate://:hunter2@host/0?queu=x",
        "redis://user:hunter2@host/0",
        "redis://:hunter2@/@host/0?queue=x",
        "redis+sluicegate://host/0?queue=x&password=hunter2&queue=y",
    ],
)
@pytest.mark.parametrize("before", [["depth"], ["depth", "--lines"], ["depth", "--url"], []])
def test_a_password_in_an_argument_is_never_printed(call_bare: Call, before: list[str], argument: str) -> None:
    failed = call_bare(*before, argument)

    assert failed.code in (2, 3)
    assert "hunter2" not in failed.out + failed.err


def test_credentials_in_any_text_are_hidden() -> None:
    text = "cannot use 'redis://me:p@ss@h:1/0' and rediss://h/0?sentinel_password=x&db=1"

    assert without_secrets(text) == "cannot use 'redis://***@h:1/0' and rediss://h/0?sentinel_password=***&db=1"


@pytest.mark.parametrize("wanted", ["option", "environment", "named file", "file here", "user's file"])
def test_the_url_comes_from_the_option_then_the_environment_then_a_file(
    call_bare: Call, url: str, outside: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    sources = ["option", "environment", "named file", "file here", "user's file"]
    urls = {name: url if name == wanted else "redis://127.0.0.1:1/0" for name in sources[sources.index(wanted) :]}
    option = ["--url", urls["option"]] if "option" in urls else []
    if "environment" in urls:
        monkeypatch.setenv("SLUICEGATE_URL", urls["environment"])
    for name, path in {"file here": "sluicegate.toml", "user's file": "home/sluicegate/config.toml"}.items():
        if name in urls:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(f'url = "{urls[name]}"\n')
    if "named file" in urls:
        Path("other.toml").write_text(f'url = "{urls["named file"]}"\n')
        monkeypatch.setenv("SLUICEGATE_CONFIG", "other.toml")

    assert call_bare("depth", "orders", "--json", *option).record["depth"]["ready"] == 0
    if option:
        assert call_bare(*option, "depth", "orders", "--json").record["depth"]["ready"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("url = ", "sluicegate.toml is not TOML: "),
        ("ulr = 'redis://x'", "sluicegate.toml has an unknown entry 'ulr'; did you mean url?"),
        ("queues = 'orders'", "sluicegate.toml: queues must be a list of texts, not str"),
        ("queues = [1]", "sluicegate.toml: queues must be a list of texts"),
        ("[gates.orders]\nready = 3", "sluicegate.toml: gates.orders is a table with min_ready, max_age_seconds, "),
        ("[gates.orders]\nmin_ready = 0", "sluicegate.toml: gates.orders: min_ready must be None or an int of 1"),
    ],
)
def test_an_entry_of_the_file_that_cannot_be_used_is_named(call_bare: Call, content: str, message: str) -> None:
    Path("sluicegate.toml").write_text(content)

    failed = call_bare("depth", "orders", "--url", "redis://127.0.0.1:1/0")

    assert failed.code == 2
    assert failed.err.startswith(f"error: {message}")


def test_the_places_of_the_file_are_those_that_a_command_shows(call: Call, orders: RedisMessageQueue) -> None:
    orders.publish("x")
    Path("sluicegate.toml").write_text('queues = ["orders", "payments"]\njobs = ["mails"]\n')

    shown = call("depth", "--json")

    assert [(one["kind"], one["name"], one["depth"]["ready"]) for one in shown.records] == [
        ("queue", "orders", 1),
        ("queue", "payments", 0),
        ("jobs", "mails", 0),
    ]


def test_an_error_that_no_user_made_is_reported_as_a_bug_and_shown_on_request(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.depths.read_depths", lambda *_: 1 / 0)

    failed = call("depth", "orders")
    monkeypatch.setenv("SLUICEGATE_TRACEBACK", "1")

    assert failed.code == 70
    assert failed.err.startswith("error: ZeroDivisionError inside sluicegate, which is a bug; please report it")
    with pytest.raises(ZeroDivisionError):
        call("depth", "orders")


def test_ctrl_c_ends_with_130_and_says_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sluicegate.depths.read_depths", interrupted)

    ended = call("depth", "orders")

    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_reader_that_goes_away_ends_the_command_quietly(url: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as output:
        ended = subprocess.run(
            [*PROGRAM, "depth", "orders", "--url", url], stdout=output, stderr=subprocess.PIPE, check=False
        )

    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_shell_completes_commands_and_the_places_of_the_file(outside: Path) -> None:
    Path("sluicegate.toml").write_text('queues = ["orders", "order-lines", "mails"]\n')

    def completed(line: str) -> list[str]:
        words = {"_SLUICEGATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        printed = subprocess.run(PROGRAM, env={**os.environ, **words}, stdout=subprocess.PIPE, text=True, check=False)
        return printed.stdout.split()

    assert "depth" in completed("sluicegate de")
    assert completed("sluicegate depth ord") == ["orders", "order-lines"]


def test_colours_are_for_terminals_and_can_be_forced(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in call("depth", "orders").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert call("depth", "orders").out.startswith("\x1b[1mqueue 'orders'\x1b[0m\n")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in call("depth", "orders").out


def test_what_others_wrote_cannot_steer_the_terminal(call: Call, make_queue: object) -> None:
    shown = call("depth", "a\x1b[2J\u202eb")

    assert shown.out.startswith("queue 'a\\x1b[2J\\u202eb'\n")
