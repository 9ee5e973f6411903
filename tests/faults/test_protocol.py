"""The protocol under random interleavings; and proof that the interleavings find what each rule is for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import redis

from sluicegate.core import scripts
from sluicegate.core.transitions.reap import reap_call
from tests.faults.interleaving import STEP, play
from tests.support.servers import PROGRAMS
from tests.support.settings import THOROUGH

SEEDS = 2000 * (1 + THOROUGH)


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a claim reap a lease in small steps, too."""
    monkeypatch.setattr("sluicegate.core.transitions.reap.reap_call", partial(reap_call, step=STEP))


@pytest.mark.timeout(120 * (1 + THOROUGH))
def test_no_answer_is_ever_wrong(bare_client: redis.Redis, request: pytest.FixtureRequest) -> None:
    which = PROGRAMS.index(request.node.callspec.params["server"])
    found = {seed: faults for seed in range(which, SEEDS, len(PROGRAMS)) if (faults := play(bare_client, seed))}
    assert found == {}


# What each rule is for: without it some seed must go wrong.
BROKEN = {
    "a settle does not look at the token": ("settle", "if not held or held.token ~= token then", "if not held then"),
    "a missing lease counts as done": (
        "settle", "return {requested_slots(ARGV, groups_at), 0, '', 0, 0}", "return {'', 0, '', 0, 0}",
    ),
    "a record is judged without its token": ("settle", "record and record.token == token then", "record then"),
    "a token has no opening": ("claim", "string.format('%.0f-%s', us, ", "string.format('1', "),
    "a reap does not fence": ("reap", "  held.token = '-'\n", ""),
    "a record does not say what was left": (
        "reap", "valid_ranges(died), valid_ranges(left))", "valid_ranges(died), '')",
    ),
    "a lost lease can be extended": ("extend", "if not held or held.token ~= token then", "if not held then"),
    "an ack frees the marker of another message": (
        "settle", "return owner and owner == id_of(entry) and key_at[slot]", "return owner and key_at[slot]",
    ),
    "a buried message keeps its marker": ("reap", "if owner == id then", "if false then"),
    "a reap frees the marker of another message": ("reap", "if owner == id then", "if owner then"),
    "an ack frees no marker": ("settle", "markers.free(slots[first + i - 1], entry)", ""),
    "a release is recorded as a failure": ("settle", "if failed and verb ~= 'release' then", "if failed then"),
    "a redrive takes a key from another message": ("redrive", "if owner and owner ~= one.name then", "if false then"),
    "a redriven message does not hold its key": (
        "redrive", "held[marker_of(one)] = one.name", "held = held",
    ),
    "a redriven letter stays dead": ("redrive", "  drop_dead(dead, dead_records, ids)\n  count_up", "  count_up"),
    "a discard is not recorded": (
        "settle", "local kept = verb == 'ack' and completed or verb == 'discard' and failed", "local kept = completed",
    ),
    "dead letters beyond the cap are not counted": (
        "settle", "count_up(counters, 'dead_dropped', over)", "",
    ),
    "a dead letter keeps its marker": (
        "settle", "      if markers then\n        markers.free(slot, entry)\n", "      if false then\n",
    ),
    "an ack of a whole lease does not look at the token": (
        "ack_whole", "if not held or held.token ~= token then", "if not held then",
    ),
    "an ack of a whole lease is proved by the ack of a part": (
        "ack_whole", "ended.acked == ended.size\n    and ended.size == tonumber(size)", "true",
    ),
    "an ack of a whole lease leaves no record": ("ack_whole", "if recorded == '1' or record or", "if record or"),
    "a reap does not count what came back": ("reap", "count_up(counters, 'in_flight', others - #slots)", ""),
}  # fmt: skip


@pytest.fixture
def break_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    load = scripts.load

    def broken(name: str, old: str, new: str) -> None:
        text = load(name).text.decode()
        assert text.count(old) == 1, f"{name}.lua has changed: {old!r} is in it {text.count(old)} times"
        changed = text.replace(old, new).encode()
        script = replace(load(name), text=changed, sha=hashlib.sha1(changed).hexdigest().encode())  # noqa: S324
        monkeypatch.setattr(scripts, "load", lambda wanted: script if wanted == name else load(wanted))

    return broken


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(
    bare_client: redis.Redis, break_script: Callable[[str, str, str], None], rule: str
) -> None:
    break_script(*BROKEN[rule])
    assert any(play(bare_client, seed) for seed in range(300)), "no seed went wrong"
