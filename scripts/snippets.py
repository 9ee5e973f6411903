"""Put example files, tables of options and tables of metrics into the documentation, at the comments that name them.

Usage: snippets.py [--check]     --check only compares, and fails when a page is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from options import table

from sluicegate.metrics.catalogue import metrics_table

PROJECT = Path(__file__).parents[1]
_FILE = re.compile(r"(<!-- snippet: (\S+\.py) -->\n)(?:```python\n.*?```\n)?", re.DOTALL)
_METRICS = re.compile(r"(<!-- metrics: (\w+) -->\n).*?(<!-- end of metrics -->)", re.DOTALL)
_TABLE = re.compile(r"(<!-- options: ([^\n]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with its blocks filled anew."""
    text = _FILE.sub(lambda found: f"{found[1]}```python\n{(PROJECT / found[2]).read_text()}```\n", text)
    text = _METRICS.sub(lambda found: found[1] + metrics_table(found[2]) + found[3], text)
    return _TABLE.sub(lambda found: found[1] + table(found[2]) + found[3], text)


def main(arguments: list[str]) -> int:
    """Fill README.md and docs in place, or compare; 0 when everything is up to date."""
    stale = []
    for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        text = page.read_text()
        fresh = filled(text)
        if fresh == text:
            continue
        if arguments == ["--check"]:
            stale.append(page.relative_to(PROJECT).as_posix())
        else:
            page.write_text(fresh)
            print(f"filled {page.relative_to(PROJECT)}")
    if stale:
        print(f"out of date: {', '.join(stale)}; run `make format`")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
