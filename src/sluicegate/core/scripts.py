"""The Lua scripts: read from the package, includes put in, headers parsed.

A script starts with a comment that states its purpose, its guarantee, `KEYS`, `ARGV`, `Returns` and `Repeat`, and
pulls shared
functions in with `--- @include <name>`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

__all__ = ["NAMES", "Header", "Script", "load", "load_all"]

NAMES = (
    "acquire_consumer", "cancel", "claim", "commit_write", "conclude", "depth", "eviction", "extend", "forget",
    "in_flight", "manifest", "pause", "peek", "promote", "publish", "purge", "reap", "redrive", "remember_returned",
    "repair", "scan", "settle", "stage_rows", "stats",
)  # fmt: skip
_INCLUDE = re.compile(r"^--- @include (\w+)\n", re.MULTILINE)
_SECTION = re.compile(r"^-- (KEYS|ARGV|Returns|Guarantee|Repeat):", re.MULTILINE)
_ITEM = re.compile(r"^--\s+(\d+)(\.\.\.)?\s+(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Header:
    """What a script says of itself.

    Attributes:
        keys: names of its KEYS in order; the last may stand for any number when `more_keys`.
        args: names of its ARGV in order; the last may stand for any number when `more_args`.
        sections: the other parts of the header by their title.
    """

    keys: tuple[str, ...]
    args: tuple[str, ...]
    more_keys: bool
    more_args: bool
    sections: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it.

    Attributes:
        name: the transition, as in the file name.
        text: the Lua source without comments.
        sha: what EVALSHA names it by.
        header: the parsed header.
    """

    name: str
    text: bytes
    sha: bytes
    header: Header


@cache
def load(name: str) -> Script:
    """Load one script by name."""
    folder = resources.files("sluicegate") / "lua"
    source = (folder / f"{name}.lua").read_text(encoding="utf-8")
    header = _parse_header(name, source)
    body = _INCLUDE.sub(
        lambda match: (folder / "include" / f"{match.group(1)}.lua").read_text(encoding="utf-8"), source
    )
    text = _COMMENT.sub("", body).encode()
    return Script(name, text, hashlib.sha1(text).hexdigest().encode(), header)  # noqa: S324  (the name Redis gives it)


@cache
def load_all() -> Mapping[str, Script]:
    """Load all scripts by name."""
    return MappingProxyType({name: load(name) for name in NAMES})


def _parse_header(name: str, source: str) -> Header:
    head = source[: source.find("\n\n")] + "\n"
    marks = list(_SECTION.finditer(head))
    ends = [mark.start() for mark in marks[1:]] + [len(head)]
    sections = {mark.group(1): head[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}
    missing = {"KEYS", "ARGV", "Returns", "Guarantee", "Repeat"} - sections.keys()
    if missing:
        raise ValueError(f"{name}.lua: its header lacks {', '.join(sorted(missing))}")
    keys, more_keys = _parse_items(name, sections["KEYS"])
    args, more_args = _parse_items(name, sections["ARGV"])
    return Header(keys, args, more_keys, more_args, MappingProxyType(sections))


def _parse_items(name: str, section: str) -> tuple[tuple[str, ...], bool]:
    items = _ITEM.findall(section)
    if [int(number) for number, _, _ in items] != list(range(1, len(items) + 1)):
        raise ValueError(f"{name}.lua: KEYS and ARGV of its header must be numbered 1, 2, 3 …")
    return tuple(item for _, _, item in items), bool(items) and items[-1][1] == "..."
