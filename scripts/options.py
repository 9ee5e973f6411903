"""Write what is derived from the declarations of the options in `sluicegate.options` and has to stand as text.

These are the signature, the call of `QueueConfig` and the documentation of the queue's constructor, and `QueueOptions`.
Run it before `sync.py`. `snippets.py` puts `table` into the pages of the documentation.

Usage: options.py [--check]     --check only compares, and fails when a file is out of date
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from sluicegate.options import OPTIONS, Option

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sluicegate"
WIDTH = 120


def parameter(option: Option) -> str:
    """Return the option as a parameter of the constructor."""
    return f"{option.name}: {option.type} = {shown(option.default)},"


def shown(default: object) -> str:
    """Return a default as ruff formats it."""
    return f'"{default}"' if isinstance(default, str) else repr(default)


def documented(option: Option) -> str:
    """Return the option in the documentation of the constructor."""
    text = f"{option.name}: {option.summary}."
    return textwrap.fill(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_long_words=False)


def lines(make: Callable[[Option], str], indent: int) -> str:
    """Return one line per option."""
    return "".join(f"{' ' * indent}{make(option)}\n" for option in OPTIONS.values())


def table(section: str) -> str:
    """Return the options of one section of `docs/configuration.md`, as a Markdown table."""
    rows = ["| option | default | unit | rule | in a spec | meaning |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{one.name}` | `{shown(one.default)}` | {one.unit} | {one.rule} | {one.in_spec} | {one.summary} |"
        for one in OPTIONS.values()
        if one.section == section
    ]
    assert len(rows) > 2, f"no option stands under {section!r}"
    return "\n".join(rows) + "\n"


# Each region, by what stands before and after it.
REGIONS: dict[str, list[tuple[str, str, str]]] = {
    "asyncio/queue.py": [
        (
            r"        gateway: [^\n]*\n(?:            [^\n]*\n)*",
            "\n".join(map(documented, OPTIONS.values())) + "\n",
            r"\n    Raises:",
        ),
        (r"        gateway: Gateway \| None = None,\n", lines(parameter, 8), r"    \) -> None:"),
        (
            r"        config = QueueConfig\(\n",
            lines(lambda option: f"{option.name}={option.name},", 12),
            r"        \)\n",
        ),
    ],
    "options.py": [
        (
            r'class QueueOptions\(TypedDict, total=False\):\n    """[^\n]*"""\n\n',
            lines(lambda option: f"{option.name}: {option.type}", 4),
            r"\Z",
        ),
    ],
}


def written(text: str, regions: list[tuple[str, str, str]]) -> str:
    """Return a module's text with its regions written anew."""
    for before, region, after in regions:
        pattern = re.compile(f"({before}).*?({after})", re.DOTALL)
        text, count = pattern.subn(lambda found, region=region: found[1] + region + found[2], text, count=1)
        assert count == 1, f"nothing stands between {before!r} and {after!r}"
    return text


def main(arguments: list[str]) -> int:
    """Write or compare; 0 when everything is up to date."""
    stale = []
    for name, regions in REGIONS.items():
        path = PACKAGE / name
        text = path.read_text(encoding="utf-8")
        fresh = written(text, regions)
        if fresh == text:
            continue
        if arguments == ["--check"]:
            stale.append(path.relative_to(ROOT).as_posix())
        else:
            path.write_text(fresh, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    if stale:
        print(f"out of date: {', '.join(stale)}; edit the declarations in options.py and run `make format`")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
