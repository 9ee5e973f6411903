"""Draw every Mermaid diagram of docs/ into docs/images/PAGE.svg, in the machine's Chromium.

Usage: python -m scripts.draw MERMAID_SCRIPT
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DRAW = """async (source) => {
  mermaid.initialize({startOnLoad: false, theme: 'neutral', fontFamily: 'sans-serif', htmlLabels: false,
                      state: {useMaxWidth: false}});
  return (await mermaid.render('diagram', source)).svg;
}"""


def diagrams() -> dict[Path, str]:
    """Return the source of the diagram of each page that has one, by the path of its picture."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        for source in _DIAGRAM.findall(page.read_text()):
            found[DOCS / "images" / page.relative_to(DOCS).with_suffix(".svg")] = source
    return found


def mark(source: str) -> str:
    """Return what the picture of a source ends with."""
    return f"<!-- drawn from {hashlib.sha256(source.encode()).hexdigest()} -->\n"


def main(arguments: list[str]) -> int:
    """Draw all diagrams."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("no Chromium on PATH: apt-get install chromium")
        return 1
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.add_script_tag(path=arguments[0])
        for picture, source in diagrams().items():
            picture.parent.mkdir(parents=True, exist_ok=True)
            # A background of its own, so that it can be read on a dark page.
            svg = page.evaluate(_DRAW, source).replace("<svg ", '<svg style="background:#fff" ', 1)
            picture.write_text(svg.rstrip() + "\n" + mark(source))
            print(f"drew {picture.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
