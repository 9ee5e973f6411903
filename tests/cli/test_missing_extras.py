"""Where an extra is not installed, its name is in the error: one line of a command, the text of a failed import."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.support.project import ROOT

_HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def _run(program: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    whole = _HIDE.format(hidden=hidden) + program
    return subprocess.run([sys.executable, "-P", "-c", whole], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_command_without_its_extra_is_one_line(missing: str) -> None:
    """Rich is missing only where something is drawn, so that counting works without it."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["sluicegate"]
    module, _, function = entry.partition(":")

    done = _run(f"sys.argv[1:] = ['--version']\nfrom {module} import {function} as main\nsys.exit(main())", missing)

    if missing == "typer":
        said = "error: the command line needs typer, which is not installed: pip install 'sluicegate[cli]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    else:
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("statement", "missing", "extra"),
    [
        ("import sluicegate.web", "starlette", "web"),
        ("from sluicegate.health import health_router", "fastapi", "web"),
        ("import sluicegate.metrics", "prometheus_client", "metrics"),
        ("import sluicegate.tracing", "opentelemetry", "tracing"),
    ],
)
def test_an_import_without_its_extra_names_it(statement: str, missing: str, extra: str) -> None:
    done = _run(statement, missing)

    last = done.stderr.splitlines()[-1]
    assert f"needs {missing}, which is not installed: pip install 'sluicegate[{extra}]'" in last
    assert "During handling" not in done.stderr
