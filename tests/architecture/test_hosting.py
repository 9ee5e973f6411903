"""The files that a hosting platform reads are valid, and run what a developer runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT

GITHUB = ROOT / ".github"
WORKFLOW = GITHUB / "workflows" / "ci.yml"
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
SCHEMAS = {
    "vendor.github-workflows": [WORKFLOW],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": FORMS,
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_of_the_platform_fits_its_schema(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_three_forms_for_issues() -> None:
    assert [path.name for path in FORMS] == [
        "bug.yml",
        "documentation.yml",
        "feature.yml",
    ]


def test_hosted_ci_runs_targets_that_exist_on_every_python_that_has_a_lock() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    run = {name for command in commands for name in re.findall(r"\bmake ([a-z-]+)", command)}
    assert run == {"check", "test", "docs", "dist", "quickstart"} <= targets
    locked = sorted(
        (path.stem.removeprefix("py") for path in (ROOT / "locks").iterdir()), key=lambda text: text.split(".")
    )
    assert jobs["test"]["strategy"]["matrix"]["python"] == locked


def test_each_hook_before_a_commit_runs_a_program_of_the_environment() -> None:
    hooks = [
        hook
        for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for hook in repository["hooks"]
    ]
    assert {hook["id"] for hook in hooks} == {"format", "lint", "generated", "prose"}
    for hook in hooks:
        program, *arguments = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        assert (Path(sys.executable).parent / Path(program).name).exists()
        assert [name for name in arguments if name.endswith(".py") and not (ROOT / name).exists()] == []
