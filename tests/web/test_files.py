"""The files of the page obey its content security policy, and hold nothing that could turn text into code."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import sluicegate.web

STATIC = Path(sluicegate.web.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())
TO_CODE = (
    r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|createContextualFragment|DOMParser|document\.write|\beval\b|"
    r"new Function"
)
MOST_BYTES = 150_000  # of all files: what a visitor waits for on a slow line


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.inline += data.strip()


def test_the_page_has_no_inline_script_or_style_and_only_relative_addresses() -> None:
    found = _Tags()
    found.feed((STATIC / "index.html").read_text())

    assert found.inline == ""
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href"):
            address = attributes.get(name)
            assert address is None or re.match(r"static/|#", address), (tag, address)
    assert not [tag for tag, _ in found.tags if tag == "base"]  # the policy allows none


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_loads_nothing_from_elsewhere_and_makes_no_code_of_text(file: Path) -> None:
    text = file.read_text()

    others = set(re.findall(r"https?://[^\s\"'`)]+|(?<=[\"'(])//\w[^\s\"'`)]*", text))
    assert others <= {"http://www.w3.org/2000/svg"}, others
    if file.suffix == ".js":
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("//", "*", "/*")))
        assert re.findall(TO_CODE, code) == []
        assert all(each.startswith("./") for each in re.findall(r"\bfrom \"([^\"]+)\"", code))
        # Addresses of the API are relative too, so that the page works under any prefix.
        assert re.findall(r"[\"'`]/(?:api|static|login|logout)", code) == []
    if file.suffix == ".css":
        assert "@import" not in text
        assert "url(" not in text


def test_the_whole_page_is_small() -> None:
    assert sum(len(file.read_bytes()) for file in FILES) < MOST_BYTES
