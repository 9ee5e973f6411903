"""No module reads another's private attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import ROOT

ROOMS = ("src", "airflow_plugin", "dagster_integration")
MODULES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
# Each exception, with the reason why it reads no module's secret.
ALLOWED = {
    ("src/sluicegate/_redis/connection.py", "parts._replace"): "a method of every named tuple",
    ("src/sluicegate/_redis/pools.py", "pools._renew_locks"): "the module calls its own class after a fork",
    ("src/sluicegate/notices.py", "notices._reset"): "the module calls its own class after a fork",
    ("src/sluicegate/core/ledger.py", "other._open"): "a ledger copies itself",
    ("src/sluicegate/core/ledger.py", "other._verbs"): "a ledger copies itself",
    ("src/sluicegate/core/ledger.py", "other._confirmed"): "a ledger copies itself",
    ("src/sluicegate/core/ledger.py", "other._counts"): "a ledger copies itself",
    ("src/sluicegate/embedded/async_client.py", "super()._connect"): "redis-py has no public hook before a connection",
    ("src/sluicegate/embedded/client.py", "super()._connect"): "redis-py has no public hook before a connection",
    ("src/sluicegate/embedded/keeper.py", "os._exit"): "a function of the standard library's public interface",
}


def private_reads(source: str) -> Iterator[str]:
    """Yield each access to a private attribute of anything but `self` and `cls`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_module_reads_the_private_attributes_of_another(module: Path) -> None:
    found = set(private_reads((ROOT / module).read_text(encoding="utf-8")))
    assert found == {read for path, read in ALLOWED if path == module.as_posix()}


def test_a_private_read_is_noticed() -> None:
    assert list(private_reads("queue._keys.pending\nself._keys\ncls._made\nqueue.__class__\n")) == ["queue._keys"]


def test_each_exception_has_a_module() -> None:
    assert {path for path, _ in ALLOWED} <= {module.as_posix() for module in MODULES}
