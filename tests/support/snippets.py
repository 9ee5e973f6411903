"""Code blocks of the documentation have the name in the comment before them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(?:<!-- snippet: (?P<name>\S+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)


def blocks(page: Path) -> list[tuple[str | None, str, str]]:
    """Return name, language and code of every block of a page."""
    return [(found["name"], found["language"], found["code"]) for found in _BLOCK.finditer(page.read_text())]


def snippet(name: str) -> str:
    """Return the code of the one block of that name."""
    (code,) = [code for page in PAGES for found, _, code in blocks(page) if found == name]
    return code
