"""The page docs/spark.md lists every parameter and option with its default."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.spark import _options, drain, lease_batch
from sluicegate.spark._option_rules import declared_options
from tests.support.project import ROOT

TEXT = (ROOT / "docs" / "spark.md").read_text()
GIVEN_FIRST = {"spark", "queue", "process"}
# What a missing option means, where the table says it in words.
WORDS = {"none", "by size", "the queue's", "one per write", "automatic", "`payload`, or all"}


def rows(title: str) -> dict[str, str]:
    """Name and default of every row of a section's table."""
    section = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", section, re.M)
    assert len(table) == len(re.findall(r"^\| `", section, re.M))
    return dict(table)


@pytest.mark.parametrize(("function", "title"), [(drain, "drain"), (lease_batch, "lease_batch")])
def test_the_table_lists_every_parameter_with_its_default(function: Callable[..., Any], title: str) -> None:
    taken = {
        name: "required" if parameter.default is inspect.Parameter.empty else f"`{parameter.default!r}`"
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in GIVEN_FIRST
    }
    assert {name: default.replace('"', "'") for name, default in rows(title).items()} == taken


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Structured Streaming", _options.StreamOptions),
        ("Inspecting a queue", _options.BrowseOptions),
        ("Publishing rows", _options.WriteOptions),
    ],
)
def test_the_table_lists_every_option_with_its_default(title: str, kind: Any) -> None:
    table = rows(title)
    declared = {name: one for name, one in declared_options(kind).items() if not one.internal}
    assert table.keys() == {one.name for one in declared.values()}

    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    for field_name, option in declared.items():
        shown = table[option.name]
        if option.required:
            assert shown == "required"
        elif defaults[field_name] is None:
            assert shown in WORDS
        else:
            assert option.rule(option.name, shown.strip("`")) == defaults[field_name]


def test_the_options_that_name_a_queue_are_listed() -> None:
    for name in _options.QUEUE_OPTIONS:
        assert f"`{name}`" in TEXT
