"""Write the synchronous shells from the asyncio ones, so that nothing is kept twice by hand.

Usage: sync.py [--check]     --check only compares, and fails when a file is out of date
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sluicegate"
RUFF = Path(sys.executable).parent / "ruff"
NAMES = (
    "operation_runner",
    "session",
    "lease_heartbeat",
    "lease",
    "publisher",
    "processing",
    "closing",
    "administration",
    "queue",
)
NOTICE = "# Made from {source} by `make format`; edit there.\n"
ASYNC_ONLY = re.compile(r"^.*# asyncio only\n", re.MULTILINE)
REPLACEMENTS = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\bsluicegate\.asyncio\.", "sluicegate."),
        (r"\bredis\.asyncio\.", "redis."),
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\bAsync(Iterator|Iterable|Generator)\b", r"\1"),
        (r"\basynccontextmanager\b", "contextmanager"),
        (r"\b__a(enter|exit)__\b", r"__\1__"),
        (r"\baclose\b", "close"),
        (r"\bAwaitable\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
        (r"`async with`", "`with`"),
    )
]


def synchronous(source: str, where: str) -> str:
    """The synchronous text of an asyncio module, imports and layout put right."""
    text = ASYNC_ONLY.sub("", source)
    for pattern, new in REPLACEMENTS:
        text = pattern.sub(new, text)
    text = NOTICE.format(source=where) + text
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I"], ["format"]):
        done = subprocess.run(
            [RUFF, *command, "--stdin-filename", PACKAGE / "made.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write or compare; 0 when everything is up to date."""
    stale = []
    for name in NAMES:
        source, target = PACKAGE / "asyncio" / f"{name}.py", PACKAGE / f"{name}.py"
        made = synchronous(source.read_text(encoding="utf-8"), source.relative_to(PACKAGE.parent.parent).as_posix())
        if target.exists() and target.read_text(encoding="utf-8") == made:
            continue
        if arguments == ["--check"]:
            stale.append(target.relative_to(ROOT).as_posix())
        else:
            target.write_text(made, encoding="utf-8")
            print(f"wrote {target.relative_to(ROOT)}")
    if stale:
        print(f"out of date: {', '.join(stale)}; edit the asyncio module and run `make format`")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
