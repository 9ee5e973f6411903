"""Check the built site: its links lead to pages, anchors and files of it, and nothing is loaded from elsewhere.

Usage: python -m scripts.check_site FOLDER
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

# What a browser loads by itself. A link may lead anywhere.
LOADED = {"img": "src", "link": "href", "script": "src", "source": "src", "iframe": "src", "video": "src"}
# Relations of <link> that load nothing.
NAMES_ONLY = {"canonical", "prev", "next", "alternate", "edit"}


class Page(HTMLParser):
    """This parser collects the anchors of a page, the links in it and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {"", "__skip"}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one element."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif (source := found.get(LOADED.get(tag, ""))) and found.get("rel") not in NAMES_ONLY:
            self.loaded.append(source)


def problems(site: Path, base: str) -> list[str]:
    """Return what is wrong in a site whose address begins with `base`."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        here = urljoin(base, name)
        for link in page.loaded:
            address = urljoin(here, link)
            if link.startswith("data:"):
                continue
            if not address.startswith(base):
                found.append(f"{name} loads {link} from another server")
            elif _file(site, base, address) is None:
                found.append(f"{name} loads {link}, which is not there")
        for link in page.links:
            address, anchor = urldefrag(urljoin(here, link))
            if urlsplit(address).scheme not in ("http", "https") or not address.startswith(base):
                continue
            target = _file(site, base, address)
            if target is None:
                found.append(f"{name} links to {link}, which is not there")
            elif target in pages and unquote(anchor) not in pages[target].anchors:
                found.append(f"{name} links to {link}, and that page has no such anchor")
    return found


def _file(site: Path, base: str, address: str) -> Path | None:
    path = site / unquote(urlsplit(address).path.removeprefix(urlsplit(base).path))
    path = path / "index.html" if path.is_dir() else path
    return path if path.is_file() else None


def main(arguments: list[str]) -> int:
    """Check the site of a folder; 0 when nothing is wrong."""
    site = Path(arguments[0])
    wrong = problems(site, "https://sluicegate.github.io/sluicegate/")
    print("\n".join(wrong) or f"{len(list(site.rglob('*.html')))} pages, and every link leads somewhere")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
