"""Put the example files into the blocks of the documentation that carry their names."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(<!-- snippet: (\S+\.py) -->\n```python\n).*?(```)", re.DOTALL)


def main() -> None:
    """Rewrite README.md and docs in place."""
    for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        text = page.read_text()
        filled = _BLOCK.sub(lambda found: found[1] + (PROJECT / found[2]).read_text() + found[3], text)
        if filled != text:
            page.write_text(filled)
            print(f"filled {page.relative_to(PROJECT)}")


if __name__ == "__main__":
    main()
