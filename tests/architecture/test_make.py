"""The commands a person meets first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

TARGETS = {
    "help", "setup", "demo", "demo-crash", "demo-dagster", "quickstart", "test", "check", "bench", "lock", "clean",
}  # fmt: skip


def make(*arguments: str) -> str:
    return subprocess.check_output(["make", "--no-print-directory", *arguments], cwd=ROOT, text=True)


def test_make_alone_prints_the_help() -> None:
    assert make() == make("help")


def test_help_explains_every_target() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    explained = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", make("help"), re.MULTILINE))

    assert targets >= TARGETS
    assert explained.keys() == targets


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """Return a copy of what `make setup` reads and a PATH without Java, with a Python that lacks ensurepip."""
    for name in ("scripts", "locks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("awk", "bash", "cat", "df", "dirname", "head", "sed"):
        found = shutil.which(name)
        assert found, f"this machine has no {name}"
        (tools / name).symlink_to(found)
    python = tools / "python3"
    python.write_text("#!/bin/bash\n[[ $* != *ensurepip* ]]\n")
    python.chmod(0o755)
    return tmp_path


def set_up(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYTHON")}
    environment["PATH"] = str(folder / "bin")
    command = [str(folder / "bin/bash"), "scripts/setup.sh"]
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)


def test_setup_names_all_that_the_system_lacks_in_one_command_and_stops(bare_machine: Path) -> None:
    done = set_up(bare_machine)
    commands = [line for line in done.stderr.splitlines() if "apt-get" in line]

    assert done.returncode != 0
    assert len(commands) == 1
    assert re.search(r"apt-get install -y python3-venv openjdk-(17|21)-jre-headless$", commands[0])
    assert "Java 17 or newer" in done.stderr
    assert not (bare_machine / ".venv").exists()


def test_setup_asks_for_a_python_where_there_is_none_that_will_do(bare_machine: Path) -> None:
    (bare_machine / "bin/python3").write_text("#!/bin/bash\nexit 1\n")

    done = set_up(bare_machine)

    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13" in done.stderr
    assert "apt-get install -y python3 python3-venv openjdk" in done.stderr
