"""Every Lua script is one that a real server takes, and says of its KEYS and ARGV what the call builder sends."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from scripts import check_lua
from sluicegate.core import scripts


def test_a_real_server_loads_every_script_under_the_name_that_the_library_uses() -> None:
    with check_lua.server() as client:
        assert check_lua.load_problems(client) == []


def test_headers_scripts_and_call_builders_agree() -> None:
    assert check_lua.header_problems() == []


def test_two_keys_in_the_wrong_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = check_lua.SAMPLES["extend"]()
    swapped = dataclasses.replace(sample, call=dataclasses.replace(sample.call, keys=sample.call.keys[::-1]))
    monkeypatch.setitem(check_lua.SAMPLES, "extend", lambda: swapped)

    (problem,) = check_lua.header_problems()

    assert problem.startswith("extend KEYS: header means")


def test_an_argument_that_no_header_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = check_lua.SAMPLES["promote"]()
    longer = dataclasses.replace(sample, call=dataclasses.replace(sample.call, args=(*sample.call.args, 1)))
    monkeypatch.setitem(check_lua.SAMPLES, "promote", lambda: longer)

    (problem,) = check_lua.header_problems()

    assert problem.startswith("promote ARGV: header means [7, b''], the builder sends [7, b'', 1]")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (r"\bstep\b", "most", "the script never reads step"),
        (
            r"tonumber\(step\)",
            "ARGV[1] + step",
            "the script reads ARGV[1] by number; use the header's name",
        ),
    ],
)
def test_a_script_that_does_not_go_by_its_header_is_found(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, problem: str
) -> None:
    read = scripts.read_body
    monkeypatch.setattr(
        scripts, "read_body", lambda name: re.sub(old, new, read(name)) if name == "promote" else read(name)
    )

    assert check_lua.header_problems() == [f"promote ARGV: {problem}"]


LUA = sorted((Path(scripts.__file__).parent.parent / "lua").rglob("*.lua"))
SOURCES = {path.stem: path.read_text() for path in LUA if path.parent.name == "lua"}
INCLUDES = {path.stem: path.read_text() for path in LUA if path.parent.name == "include"}


def defined(text: str) -> set[str]:
    """Return the functions and constants that an include defines for others."""
    functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    constants = re.findall(r"^local ([A-Z][A-Z_, ]*) =", text, re.MULTILINE)
    return {*functions, *(name for line in constants for name in line.split(", "))}


def used(text: str) -> set[str]:
    """Return the functions that a file calls and the constants that it reads, but for its own."""
    code = re.sub(r"'[^'\n]*'|--.*", "", text)
    own = set(re.findall(r"^ *local function (\w+)", text, re.MULTILINE)) | defined(text)
    return {*re.findall(r"(?<![\w.])\w+(?=\()", code), *re.findall(r"\b[A-Z][A-Z_]+\b", code)} - own


DEFINED = {include: defined(text) for include, text in INCLUDES.items()}


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_includes_stand_once_and_before_all_code(path: Path) -> None:
    text = path.read_text()
    body = re.sub(r"\A(--.*\n|\n)+", "", text)
    names = scripts.read_includes(text)
    assert "@include" not in body
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", [*SOURCES, *INCLUDES])
def test_a_file_names_the_includes_that_it_uses_and_no_others(name: str) -> None:
    text = {**SOURCES, **INCLUDES}[name]
    named = {*scripts.read_includes(text), *scripts.read_insides(text)}
    assert named == {include for include, names in DEFINED.items() if names & used(text)}


def test_no_two_includes_define_the_same_and_no_script_hides_what_it_includes() -> None:
    names = [name for defines in DEFINED.values() for name in defines]
    assert sorted(names) == sorted(set(names))
    for script in scripts.load_all().values():
        header = {*script.header.keys, *script.header.args}
        assert not header & {*names, "type", "next", "select", "string", "table", "math", "redis", "unpack"}, (
            script.name
        )


def test_an_include_that_needs_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    circle = {"a": "--- @include b\n", "b": "--- @include a\n"}
    monkeypatch.setattr(scripts, "_read_include", circle.__getitem__)
    with pytest.raises(ValueError, match=r"include a\.lua needs itself: a → b → a"):
        scripts._in_order(["a"])


def test_what_a_function_includes_for_itself_is_defined_there_and_what_that_needs_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An include inside of a function stands there only, and the includes that it needs stand before the function."""
    texts = {
        "outer": "local function outer()\n  --- @inside rare\n  return rare()\nend\n",
        "rare": "--- @include always\nlocal function rare() return always() end\n",
        "always": "local function always() return 1 end\n",
    }
    monkeypatch.setattr(scripts, "_read_include", texts.__getitem__)
    assert scripts._in_order(["outer"]) == ["always", "outer"]
    assert scripts._with_insides(texts["outer"]).splitlines()[1:3] == [
        "--- @include always",
        "local function rare() return always() end",
    ]


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_a_file_fits_on_a_few_screens(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= (210 if path.stem == "verdicts" else 120)  # one settle's verdicts share their tallies
    assert max(map(len, lines)) <= 120


def test_a_script_that_is_no_lua_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(scripts.load("promote"), text=b"return (")
    monkeypatch.setattr(scripts, "load_all", lambda: {"promote": broken})

    with check_lua.server() as client:
        (problem,) = check_lua.load_problems(client)

    assert problem.startswith("promote.lua: Error compiling script")
