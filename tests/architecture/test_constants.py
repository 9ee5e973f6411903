"""Constants that several modules share stand in one place; the Lua scripts agree with it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sluicegate.core.bounds import MAX_CLAIM_LIMIT, NO_WHY, SEPARATOR
from tests.support.project import ROOT

ROOMS = ("src", "airflow_plugin", "dagster_integration")
MODULES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
LUA = sorted((ROOT / "src" / "sluicegate" / "lua").rglob("*.lua"))


def literals(module: Path) -> list[object]:
    """Return the values of all literals of a module, without its docstrings."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]


def holds_separator(value: object) -> bool:
    """Return whether a literal holds the separator."""
    return SEPARATOR in value if isinstance(value, bytes) else isinstance(value, str) and SEPARATOR.decode() in value


def test_the_separator_stands_in_one_module() -> None:
    found = {module.as_posix() for module in MODULES if any(map(holds_separator, literals(module)))}
    assert found == {"src/sluicegate/core/bounds.py"}
    assert NO_WHY == SEPARATOR + SEPARATOR


def test_lua_writes_the_same_separator() -> None:
    escapes = {escape for path in LUA for escape in re.findall(r"\\(\d{1,3}|x[0-9a-fA-F]{2})", path.read_text())}
    assert escapes == {str(SEPARATOR[0])}


def test_the_most_messages_of_a_claim_are_named_once() -> None:
    named = {
        f"{module.as_posix()}: {target.id}"
        for module in MODULES
        for node in ast.parse((ROOT / module).read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == MAX_CLAIM_LIMIT
        for target in node.targets
        if isinstance(target, ast.Name) and re.search("CLAIM|LEASE|BATCH|PARTITION", target.id)
    }
    assert named == {
        "src/sluicegate/core/bounds.py: MAX_CLAIM_LIMIT",
        "src/sluicegate/draining/arguments.py: MAX_PARTITIONS",
    }
