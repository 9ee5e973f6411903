"""The scripts of moves are held to the rules of all scripts: they belong to this room alone, so it checks them."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from scripts import check_lua
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.migrating import calls
from tests.architecture import test_lua

FOLDER = resources.files("sluicegate.migrating") / "lua"
KEYS, STREAM = QueueKeys("q"), StreamKeys("s")
HELD = calls.HeldEntry(b"g", b"c", b"1-1", 2, 3)
BUILT: list[Call[object]] = [
    calls.take_call(b"l", done=1, nonce=b"n", notes=[b"z"], wanted=[b"v"]),
    calls.set_aside_call(b"l", 1, [b"v"]),
    calls.describe_keys_call([b"k"]),
    calls.read_list_call(b"l"),
    calls.read_notes_call(b"d", b"c", [b"v"]),
    calls.read_hashes_call([b"h"]),
    calls.drop_keys_call([b"h"], b"id", [b"x"]),
    calls.find_keys_call(b"l", b"*"),
    calls.mark_source_call(b"s", b"n"),
    calls.left_entries_call(b"s", [b"1-1"]),
    calls.read_stream_call(b"s", b"0-0"),
    calls.drop_entries_call(b"s", [b"1-1"], [b"g"]),
    calls.moved_page_call(KEYS, b"o"),
    calls.move_in_call(KEYS, b"o", b"1-0", [b"v", b""]),
    calls.move_into_stream_call(STREAM, b"o", b"0-0", b"1-1", [(b"1-1", [b"a", b"b"])], groups=[b"g"], held=[HELD]),
    calls.move_markers_call(KEYS, [b"m"], b"o", [1]),
]


def test_every_file_is_a_script_and_the_server_loads_it_under_its_name() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(f"{name}.lua" for name in calls.SCRIPTS)
    with check_lua.server() as client:
        for name in calls.SCRIPTS:
            script = calls.load_script(name)
            assert client.script_load(script.text) == script.sha.decode()


@pytest.mark.parametrize("name", calls.SCRIPTS)
def test_a_script_goes_by_its_header_and_names_its_includes(name: str) -> None:
    text = (FOLDER / f"{name}.lua").read_text()
    header = calls.load_script(name).header
    body = re.sub(r"\A(--.*\n)+", "", text)
    for names, more in ((header.keys, header.more_keys), (header.args, header.more_args)):
        singles = [*names[:-1], f"{names[-1]}_at"] if more else list(names)
        assert [one for one in singles if not re.search(rf"\b{one}\b", body)] == []
    needed = {include for include, defined in test_lua.DEFINED.items() if defined & test_lua.used(text)}
    assert set(scripts.read_includes(text)) == needed
    assert len(text.splitlines()) <= 120


def test_every_call_builder_fills_the_header_of_its_script() -> None:
    assert {call.script.name for call in BUILT} == set(calls.SCRIPTS)
    for call in BUILT:
        header = call.script.header
        for given, names, more in (
            (call.keys, header.keys, header.more_keys),
            (call.args, header.args, header.more_args),
        ):
            assert len(given) >= len(names) if more else len(given) == len(names), call.script.name


@pytest.mark.parametrize(
    ("key", "beside"),
    [
        (b"orders::pending", b"{orders::pending}:x"),
        (b"{orders}::pending", b"{orders}::pending:x"),
        (b"a{b", b"{a{b}:x"),
        (b"a}b", b"a}b:x"),
        (b"{}a", b"{}a:x"),
    ],
)
def test_a_key_beside_another_is_in_its_slot(key: bytes, beside: bytes) -> None:
    """The last two have no name of ours in their slot; a server without slots takes any."""
    assert calls.beside(key, b":x") == beside
    if b"}" not in key or key.startswith(b"{orders"):
        from redis.crc import key_slot

        assert key_slot(calls.beside(key, b":x")) == key_slot(key)
