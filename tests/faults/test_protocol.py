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
from sluicegate.errors import LuaScriptError
from tests.faults.interleaving import STEP, play
from tests.support.servers import PROGRAMS
from tests.support.settings import THOROUGH

SEEDS = 1000 * (1 + 3 * THOROUGH)


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a claim reap a lease in small steps, too."""
    monkeypatch.setattr("sluicegate.core.transitions.reap.reap_call", partial(reap_call, step=STEP))


@pytest.mark.timeout(120 * (1 + THOROUGH))
def test_no_answer_is_ever_wrong(bare_client: redis.Redis, request: pytest.FixtureRequest) -> None:
    which = PROGRAMS.index(request.node.callspec.params["server"])
    found = {seed: faults for seed in range(which, SEEDS, len(PROGRAMS)) if (faults := play(bare_client, seed))}
    assert found == {}


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.timeout(60 * (1 + 4 * THOROUGH))
def test_no_answer_about_blocks_is_ever_wrong(bare_client: redis.Redis, request: pytest.FixtureRequest) -> None:
    which = PROGRAMS.index(request.node.callspec.params["server"])
    seeds = range(which, 400 * (1 + 4 * THOROUGH), len(PROGRAMS))
    found = {seed: faults for seed in seeds if (faults := play(bare_client, seed, packs=True))}
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
        "settle", "if value and string.match(value, '^[^\\31]*', 13) == id then", "if value then",
    ),
    "a buried message keeps its marker": ("reap", "markers.free(place, id)", ""),
    "a reap frees the marker of another message": (
        "reap", "if value and string.match(value, '^[^\\31]*', 13) == id then", "if value then",
    ),
    "an ack frees no marker": ("settle", "markers.free(slots[first + i - 1], entry)", ""),
    "a release is recorded as a failure": ("settle", "if failed and verb ~= 'release' then", "if failed then"),
    "a redrive takes a key from another message": ("redrive", "if owner and owner ~= one.name then", "if false then"),
    "a redriven message does not hold its key": (
        "redrive", "held[marker_place(one)] = one.name", "held = held",
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

# The same for messages in blocks.
BROKEN_OF_BLOCKS = {
    "a block stays when it is opened": (
        "settle", "  redis.call('HDEL', key, block.name)\n  return #entries, gone\n", "  return #entries, gone\n",
    ),
    "a verdict for a part takes the whole block": (
        "settle", "or first > blocks[i].first or last < blocks[i].last then", "then",
    ),
    "a claim leaves the whole block": ("claim", "  if batch.rest then\n    put_rest", "  if false then\n    put_rest"),
    "a claim drops what it leaves of a block": (
        "claim", "batch.rest = {cut_block(block, left + 1, block.count)}",
        "batch.rest = {cut_block(block, block.count, block.count)}",
    ),
    "a reap leaves the block": ("reap", "drop_slots(lease, packed_in or {})", ""),
    "a record does not say what was left in blocks": (
        "reap", "      held[slot] = true\n    end\n  end\n  for slot = 1, lease.size",
        "    end\n  end\n  for slot = 1, lease.size",
    ),
    "the bookkeeping of a lease forgets its blocks": ("claim", "lease.blocks and 'b' or ''", "''"),
    "an opened block has other messages": (
        "settle", "= block.first + at - 1, entries[at]", "= block.first + at - 1, entries[1]",
    ),
}  # fmt: skip
SMALL_PIECES = ("claim", "local FEW = 16", "local FEW = 3")


@pytest.fixture
def break_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    def broken(name: str, old: str, new: str) -> None:
        load = scripts.load
        text = load(name).text.decode()
        assert text.count(old) == 1, f"{name}.lua has changed: {old!r} is in it {text.count(old)} times"
        changed = text.replace(old, new).encode()
        script = replace(load(name), text=changed, sha=hashlib.sha1(changed).hexdigest().encode())  # noqa: S324
        monkeypatch.setattr(scripts, "load", lambda wanted: script if wanted == name else load(wanted))

    return broken


@pytest.fixture
def small_pieces(break_script: Callable[[str, str, str], None]) -> None:
    """Let a claim cut blocks of few messages, too."""
    break_script(*SMALL_PIECES)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("rule", BROKEN_OF_BLOCKS)
def test_a_broken_rule_of_blocks_is_noticed(
    bare_client: redis.Redis, break_script: Callable[[str, str, str], None], rule: str
) -> None:
    break_script(*BROKEN_OF_BLOCKS[rule])
    assert any(goes_wrong(bare_client, seed) for seed in range(300)), "no seed went wrong"


def goes_wrong(client: redis.Redis, seed: int) -> bool:
    try:
        return play(client, seed, packs=True) != []
    except LuaScriptError:
        return True


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(
    bare_client: redis.Redis, break_script: Callable[[str, str, str], None], rule: str
) -> None:
    break_script(*BROKEN[rule])
    assert any(play(bare_client, seed) for seed in range(300)), "no seed went wrong"
