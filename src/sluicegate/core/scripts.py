"""The Lua scripts: read from the package, with includes inserted and headers parsed.

A script starts with a comment that states its purpose, its guarantee, `KEYS`, `ARGV`, `Returns` and `Repeat`. Lines
`--- @include <name>, <name>…` follow; an include may start with such lines of its own. The loader inserts every include
once, after the includes that it needs itself. A line `--- @inside <name>, <name>…` in a function of an include inserts
includes there: Redis defines every function of a script at every call, but those in a function only when it is called.

Scripts read names, not numbers: for each item of `KEYS` and `ARGV` the loader declares a local variable of that name,
and for an item that may repeat (`7... markers`) the index of its first value (`markers_at`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

__all__ = [
    "NAMES",
    "VERBS",
    "Header",
    "Script",
    "load",
    "load_all",
    "make_script",
    "read_body",
    "read_includes",
    "read_insides",
]

NAMES = (
    "ack_and_claim",
    "ack_whole", "acquire_consumer", "adopt", "batch", "browse_group", "cancel", "cancel_in_stream", "cancel_job",
    "claim", "claim_known", "commit_write", "conclude", "create_group", "delete_group", "depth", "ended", "eviction",
    "examine", "expire_leases", "extend", "find_unread", "foreign_pending", "forget", "in_flight", "keep_driver",
    "keep_group", "keep_jobs", "list_jobs", "manifest", "pause", "peek", "peek_in_stream", "peek_jobs", "probe_rights",
    "promote", "publish", "publish_to_stream", "purge", "purge_unread", "reap", "recount_in_flight", "redrive",
    "remember_returned", "repair", "repair_leases", "replay", "scan", "settle", "stage_rows", "stats", "stream_info",
    "trim", "update_job", "wake_groups",
)  # fmt: skip
VERBS = {
    "ack_and_claim": "claim",
    "ack_whole": "settle", "adopt": "reap", "browse_group": "peek", "cancel_in_stream": "cancel",
    "cancel_job": "cancel", "claim_known": "claim", "examine": "peek", "expire_leases": "reap",
    "find_unread": "cancel", "foreign_pending": "peek", "keep_jobs": "publish", "list_jobs": "peek",
    "peek_in_stream": "peek", "peek_jobs": "peek", "probe_rights": "peek", "publish_to_stream": "publish",
    "purge_unread": "purge", "recount_in_flight": "repair", "repair_leases": "repair", "update_job": "update",
    "wake_groups": "publish",
}  # fmt: skip
"""The operations that scripts of other names belong to."""
_FOLDER = resources.files("sluicegate") / "lua"
_INCLUDE = re.compile(r"^--- @include (.+)\n", re.MULTILINE)
_INSIDE = re.compile(r"^ +--- @inside (.+)\n", re.MULTILINE)
_SECTION = re.compile(r"^-- (KEYS|ARGV|Returns|Guarantee|Repeat):", re.MULTILINE)
_ITEM = re.compile(r"^--\s+(\d+)(\.\.\.)?\s+(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Header:
    """The parsed header of a script.

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
        name: the file name.
        verb: the operation that it belongs to, as errors and events name it.
        text: the Lua source with its includes and without comments.
        sha: the hash that EVALSHA names it by.
        header: the parsed header.
    """

    name: str
    verb: str
    text: bytes
    sha: bytes
    header: Header


@cache
def load(name: str) -> Script:
    """Load one script by name."""
    return make_script(name, _read(name))


def make_script(name: str, source: str) -> Script:
    """Make the script of a source, with this package's includes; for scripts that belong to one room alone."""
    header = _parse_header(name, source)
    includes = [_with_insides(_read_include(include)) for include in _in_order(read_includes(source))]
    body = "".join(
        [
            *includes,
            _declarations("KEYS", header.keys, header.more_keys),
            _declarations("ARGV", header.args, header.more_args),
            source,
        ]
    )
    text = _COMMENT.sub("", body).encode()
    sha = hashlib.sha1(text).hexdigest().encode()  # noqa: S324  (the name Redis gives it)
    return Script(name, VERBS.get(name, name), text, sha, header)


@cache
def load_all() -> Mapping[str, Script]:
    """Load all scripts, by name."""
    return MappingProxyType({name: load(name) for name in NAMES})


def read_includes(source: str) -> list[str]:
    """Read the names of the includes that a script or an include asks for itself."""
    return [name for line in _INCLUDE.findall(source) for name in line.split(", ")]


def read_insides(include: str) -> list[str]:
    """Read the names of the includes that a function of an include defines for itself."""
    return [name for line in _INSIDE.findall(include) for name in line.split(", ")]


def read_body(name: str) -> str:
    """Read the code of a script without its header, its includes and its comments."""
    return _COMMENT.sub("", _read(name))


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")


@cache
def _read_include(name: str) -> str:
    return _read(f"include/{name}")


def _in_order(wanted: Sequence[str]) -> list[str]:
    """Order these includes and all that they need, each once and after those that it needs."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"include {name}.lua needs itself: {' → '.join((*above, name))}")
        if name not in done:
            text = _read_include(name)
            insides = read_insides(text)
            for needed in (text, *map(_read_include, insides)):
                for other in read_includes(needed):
                    if other not in insides:
                        visit(other, (*above, name))
            done.append(name)

    for name in wanted:
        visit(name, ())
    return done


def _with_insides(include: str) -> str:
    """Put the includes that functions of an include define for themselves in their places."""
    return _INSIDE.sub(lambda line: "".join(_read_include(name) for name in line[1].split(", ")), include)


def _declarations(array: str, names: Sequence[str], more: bool) -> str:
    """Declare local variables for the values of KEYS or ARGV, and for the index of the first that may repeat."""
    single = names[:-1] if more else names
    lines = f"local {', '.join(single)} = unpack({array}, 1, {len(single)})\n" if single else ""
    return lines + (f"local {names[-1]}_at = {len(names)}\n" if more else "")


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
