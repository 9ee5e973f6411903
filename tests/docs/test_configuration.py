"""The page docs/configuration.md lists every option as it is declared, with its default."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

from sluicegate.config import QueueConfig
from sluicegate.options import OPTIONS
from tests.support.project import ROOT

TEXT = (ROOT / "docs" / "configuration.md").read_text()
ROWS: list[tuple[str, str]] = re.findall(
    r"^\| `(\w+)` \| (?:`([^`]*)`|required) \|(?: [^|]* \| [^|]+ \| \w+ \| [^|]+| [^|]+ \| [^|]+) \|$", TEXT, re.M
)
DEFAULTS: dict[str, Any] = {
    "name": inspect.Parameter.empty,
    "client": None,
    "url": None,
    "gateway": None,
    **{field.name: field.default for field in dataclasses.fields(QueueConfig)},
}


def shown(default: Any) -> str:
    return "" if default is inspect.Parameter.empty else repr(default).replace("'", '"')


def test_every_row_of_a_table_is_an_option() -> None:
    assert len(re.findall(r"^\| `", TEXT, re.M)) == len(ROWS)
    names = [name for name, _ in ROWS]
    assert len(names) == len(set(names))


def test_the_tables_list_every_option_with_its_default() -> None:
    assert dict(ROWS) == {name: shown(default) for name, default in DEFAULTS.items()}


@pytest.mark.parametrize("module", ["sluicegate", "sluicegate.asyncio"])
def test_the_constructors_take_the_options_with_these_defaults(module: str) -> None:
    queue = importlib.import_module(module).RedisMessageQueue
    taken = {
        name: shown(parameter.default)
        for name, parameter in inspect.signature(queue).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert taken == dict(ROWS)


@pytest.mark.parametrize("script", ["options.py", "snippets.py"])
def test_what_is_generated_from_the_declarations_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_an_option_is_declared_completely(option: Any) -> None:
    assert option.rule
    assert option.summary[0].islower()
    assert not option.summary.endswith(".")
    assert "|" not in option.rule + option.summary, "it stands in a Markdown table"
    assert bool(option.unit) == option.name.endswith(("_seconds", "_length", "_bytes", "_depth", "_count"))
    option.check(option.name, option.default)
