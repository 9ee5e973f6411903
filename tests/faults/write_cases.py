"""Calls of staged writes as the tests of repeats, of wrong types and of full memory make them."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.entry import client_part
from sluicegate.spark.transitions import WriteVerb, commit_write_call, stage_rows_call, staged_rows_call
from tests.support.core_calls import Core

PARTS = [client_part(b"", b"", b"", name.encode()) for name in "abcd"]


def stage(core: Core, name: str = "s", expected: int = 0) -> Call[Any]:
    parts = PARTS[expected : expected + 2]
    return stage_rows_call(core.keys, name.encode(), expected, parts, life_seconds=60)


def stage_more(core: Core) -> Call[Any]:
    core.do(stage(core))
    return stage(core, expected=2)


def stage_what_is_gone(core: Core) -> Call[Any]:
    return stage(core, expected=2)


def look_into_a_stage(core: Core) -> Call[Any]:
    core.do(stage_more(core))
    return staged_rows_call(core.keys, b"s", 1, 2)


def commit_write(core: Core, verb: WriteVerb, *names: str) -> Call[Any]:
    reported = dict.fromkeys(names, "2 1000")
    return commit_write_call(core.keys, b"w", verb, reported, life_seconds=600)


def open_a_write(core: Core) -> Call[Any]:
    core.do(stage(core, "s"))
    core.do(stage(core, "t"))
    return commit_write(core, "open", "s", "t")


def open_what_is_gone(core: Core) -> Call[Any]:
    core.do(stage(core, "s"))
    return commit_write(core, "open", "s", "t")


def look_at_a_write(core: Core) -> Call[Any]:
    core.do(open_a_write(core))
    return commit_write(core, "look")


def finish_a_stage(core: Core) -> Call[Any]:
    core.do(open_a_write(core))
    return commit_write(core, "finish", "s")


def finish_a_write(core: Core) -> Call[Any]:
    core.do(finish_a_stage(core))
    return commit_write(core, "finish", "t")


def drop_a_stage(core: Core) -> Call[Any]:
    core.do(open_a_write(core))
    core.do(stage(core, "u"))
    return commit_write(core, "drop", "s", "u")


def cancel_a_write(core: Core) -> Call[Any]:
    core.do(open_a_write(core))
    return commit_write(core, "cancel", "s", "t")


CASES = [
    stage, stage_more, stage_what_is_gone, look_into_a_stage, open_a_write, open_what_is_gone, look_at_a_write,
    finish_a_stage, finish_a_write, drop_a_stage, cancel_a_write,
]  # fmt: skip
TYPES = {"stage_rows": (stage_more, "stage"), "commit_write": (open_a_write, "leases write stages")}
