"""The page on troubleshooting has an entry for every error, and quotes texts that the code really raises."""

from __future__ import annotations

import ast
import re
import traceback
from functools import cache
from pathlib import Path

import pytest

import sluicegate
from sluicegate import LeaseLostError, RedisMessageQueueError, RedisUnavailableError, errors
from tests.support.project import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ROOMS = ("src", "airflow_plugin", "dagster_integration")
HEADINGS = re.findall(r"^##+ (\w+Error)$", PAGE, re.MULTILINE)
# The first cell of the rows below the heading of an error.
ENTRIES = {
    match[1]: match[2] for match in re.finditer(r"^##+ (\w+Error)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
QUOTED = [
    (name, text.strip())
    for name, entry in ENTRIES.items()
    for cell in re.findall(r"^\| (`[^|]+) \|", entry, re.MULTILINE)
    for text in re.findall(r"``(.+?)``|`([^`]+)`", cell)[0]
    if text
]
GAP = "\0"


def flat(node: ast.expr) -> str:
    """Return the text of an expression, with a mark where a value is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(flat(value) for value in node.values)
    if isinstance(node, ast.BinOp):
        return flat(node.left) + flat(node.right)
    return GAP


@cache
def texts() -> tuple[str, ...]:
    """Return every text of the code."""
    found = set()
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.BinOp | ast.Constant):
                found.add(flat(node))
    return tuple(found)


def holds(text: str, parts: list[str]) -> bool:
    """Return whether a text has the parts in their order, with a value between one and the next."""
    at = 0
    for number, part in enumerate(parts):
        start = text.find(part, at)
        if start < 0 or (number and GAP not in text[at:start]):
            return False
        at = start + len(part)
    return True


def classes() -> set[str]:
    """Return the names of all classes that derive from the base class, found without importing them."""
    bases = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    found = {RedisMessageQueueError.__name__}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


def test_every_error_has_one_entry_and_every_entry_is_an_error() -> None:
    assert set(errors.__all__) <= classes()
    assert sorted(HEADINGS) == sorted(classes())


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_an_entry_says_what_happened_and_what_to_do(name: str) -> None:
    sentences = [line for line in ENTRIES[name].splitlines() if line and not line.startswith(("|", "**"))]
    assert sentences
    rows = [line for line in ENTRIES[name].splitlines() if line.startswith("| `")]
    assert all(len(row.split(" | ")) == 3 for row in rows), name


@pytest.mark.parametrize(("name", "text"), QUOTED, ids=lambda value: value[:40])
def test_a_quoted_text_is_one_that_the_code_raises(name: str, text: str) -> None:
    parts = [part.strip() for part in text.split("…") if part.strip()]
    assert any(holds(each, parts) for each in texts()), (
        f"no text of the code has {text!r}, which the entry of {name} quotes"
    )


def test_many_texts_are_quoted() -> None:
    assert len(QUOTED) > 90


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_links_to_its_entry(name: str) -> None:
    kind = getattr(errors, name)
    error = kind.__new__(kind)
    assert error.docs_url == f"https://sluicegate.github.io/sluicegate/troubleshooting/#{name.lower()}"
    assert name in HEADINGS


def test_the_link_stands_below_the_traceback_and_nowhere_else() -> None:
    error = RedisUnavailableError("Redis is away")
    error.add_note("before")
    error.add_note("after it")
    assert str(error) == "Redis is away"
    assert error.docs_url not in repr(error)
    lines = traceback.format_exception_only(error)
    assert [line.rstrip() for line in lines] == [
        "sluicegate.errors.RedisUnavailableError: Redis is away",
        "before",
        "after it",
        f"See {error.docs_url}",
    ]


def test_an_error_of_a_user_links_to_the_entry_of_its_base() -> None:
    class MyError(LeaseLostError):
        """This error belongs to a user's program."""

    error = MyError("gone", lease_id="a", lost=())
    assert error.docs_url.endswith("#leaselosterror")


def test_the_address_is_that_of_the_site() -> None:
    urls = re.search(r'^Documentation = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert urls is not None
    assert sluicegate.RedisMessageQueueError("x").docs_url.startswith(f"{urls[1]}troubleshooting/")
    assert Path(ROOT / "docs" / "troubleshooting.md").exists()
