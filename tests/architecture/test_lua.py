"""Every Lua script is one that a real server takes, and says of its KEYS and ARGV what the call builder sends."""

from __future__ import annotations

import dataclasses

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

    assert problem.startswith("promote ARGV: header means [7], the builder sends [7, 1]")


def test_a_script_that_reads_beyond_its_header_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script = scripts.load("promote")
    eager = dataclasses.replace(script, text=script.text + b"\nreturn ARGV[2]")
    load = scripts.load
    monkeypatch.setattr(scripts, "load", lambda name: eager if name == "promote" else load(name))

    assert check_lua.header_problems() == ["promote ARGV: the script reads number 2, the header ends at 1"]


def test_a_script_that_is_no_lua_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(scripts.load("promote"), text=b"return (")
    monkeypatch.setattr(scripts, "load_all", lambda: {"promote": broken})

    with check_lua.server() as client:
        (problem,) = check_lua.load_problems(client)

    assert problem.startswith("promote.lua: Error compiling script")
