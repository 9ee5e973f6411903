"""The page on draining lists the parameters of `sluicegate.drain` with their defaults."""

from __future__ import annotations

import inspect
import re

from sluicegate import drain
from tests.support.project import ROOT


def test_the_table_lists_every_parameter_with_its_default() -> None:
    text = (ROOT / "docs" / "draining.md").read_text().split("\n## Parameters\n")[1].split("\n## ")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| `([^|]+)` \| [^|]+ \|$", text, re.M))
    taken = {
        name: repr(parameter.default)
        for name, parameter in inspect.signature(drain).parameters.items()
        if name not in ("queue", "process")
    }
    assert table == taken
