"""docs/spark.md lists the parameters and options that there are, with the defaults that they have."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.spark import _options, drain, lease_batch
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
    ("title", "names", "parse", "needed"),
    [
        ("Structured Streaming", _options._STREAM, _options.StreamOptions, {"consumer": "me"}),
        ("Inspecting a queue", _options._BROWSE, _options.BrowseOptions, {}),
        ("Publishing rows", _options._WRITE, _options.WriteOptions, {}),
    ],
)
def test_the_table_lists_every_option_with_its_default(
    title: str, names: tuple[str, ...], parse: Any, needed: dict[str, str]
) -> None:
    table = rows(title)
    assert table.keys() == set(names) - _options._INTERNAL

    name_only = {"url": "redis://nowhere:1/0", "queue": "orders", **needed}
    by_default = parse.parse(name_only)
    told = {name: default.strip("`") for name, default in table.items() if default not in WORDS | {"required"}}
    assert told
    assert parse.parse(name_only | told) == by_default
    left_out = [field.name for field in dataclasses.fields(by_default) if getattr(by_default, field.name) is None]
    assert len(left_out) >= len([name for name, default in table.items() if default in WORDS])


def test_the_options_that_name_a_queue_are_told() -> None:
    for name in _options._QUEUE:
        assert f"`{name}`" in TEXT
