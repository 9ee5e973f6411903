"""Every console block of the page on the command line is run, in the order of the page, on one server."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from sluicegate.cli.exits import EXIT_CODES
from sluicegate.cli.main import run
from sluicegate.cli.registry import COMMANDS
from tests.support.project import ROOT
from tests.support.servers import RedisServer
from tests.support.snippets import blocks

PAGE = ROOT / "docs" / "cli.md"
# What differs from run to run: ids, tokens, times, durations and rates.
_VARIES = (
    (re.compile(r"(?<![\w.])[\w.]{16}-\d+\b"), "ID"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"[\d,.]+ messages/s"), "RATE"),
    (re.compile(r"\b\d+m \d+s\b|\b[\d.]+m?s\b|\bnow\b"), "DURATION"),
    (re.compile(r"DURATION ago"), "DURATION"),
    (re.compile(r" {2,}"), "  "),
)
BLOCKS = [code for _, language, code in blocks(PAGE) if language == "console"] if PAGE.exists() else []


def normal(text: str) -> list[str]:
    """Return lines without what differs from run to run."""
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines()]


def parts(code: str) -> list[tuple[str, str]]:
    """Return the commands of a block with the output that the page shows."""
    found = re.findall(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE)
    assert "".join(f"$ {command}\n{output}" for command, output in found) == code
    return found


class Shell:
    """Runs the commands of the page: those without a pipe in this process, since each start takes a second.

    Args:
        folder: where they run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = folder / "bin" / "sluicegate"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nimport sys\nfrom sluicegate.cli.main import main\nsys.exit(main())\n")
        program.chmod(0o755)

    def run(self, command: str) -> str:
        """Run a command, and return what it printed to both streams."""
        if re.search(r"[|>$&]", command) or not command.startswith("sluicegate "):
            path = f"{self._folder}/bin:{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            return done.stdout
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with redirect_stdout(printed), redirect_stderr(printed):
            run(shlex.split(command)[1:])
        printed.seek(0)
        return printed.read()


def test_every_example_prints_what_the_page_shows(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as client:
        client.flushall()
    for name, value in {"SLUICEGATE_URL": server.url, "XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLUICEGATE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    assert len(BLOCKS) >= 9
    for code in BLOCKS:
        for command, expected in parts(code):
            assert normal(shell.run(command)) == normal(expected), command


@pytest.mark.parametrize("name", [listed.name for listed in COMMANDS])
def test_every_command_has_its_place_on_the_page(name: str) -> None:
    text = PAGE.read_text()
    assert f"`{name}`" in text or f"sluicegate {name}" in text


def test_the_exit_codes_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(int(code), text) for code, text in rows] == [(int(code), text) for code, text in EXIT_CODES.items()]
