"""Calls about messages of batches and jobs as the tests of repeats, of wrong types and of stopped scripts make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sluicegate.core.call import Call
from sluicegate.core.transitions.batches import batch_call, ended_call
from sluicegate.core.transitions.cancel import cancel_call
from sluicegate.core.transitions.claim import Opened
from sluicegate.core.transitions.conclude import Conclusion, conclude_call
from sluicegate.core.transitions.purge import purge_call
from sluicegate.core.transitions.redrive import redrive_call
from sluicegate.core.transitions.scan import Step, Target, scan_call
from tests.support import state
from tests.support.core_calls import Core, verdict

WHY = b"r\x1fE\x1ft"
STEP = Step(b"tracked", 1)


def publish(core: Core, *names: str, call: int = 0, **more: Any) -> Call[Any]:
    """Make a call that publishes jobs of the batch `G`."""
    core.do(batch_call(core.keys, "open", b"G", life_seconds=60))
    return core.publish(f"G:{call}", *names, kind=b"7", tracked=b"G", job_kinds=b"email", receipt=0, **more)


def batch(core: Core, letters: str = "abcdef", *, jobs: bool = True) -> None:
    """Publish a sealed batch of jobs or of messages, in a queue without anything else to claim."""
    for key in (core.keys.pending, core.keys.returned):
        core.client.delete(key)
    call = publish(core, *letters)
    if not jobs:
        args = [{b"7": b"5", b"email": b""}.get(arg, arg) if isinstance(arg, bytes) else arg for arg in call.args]
        call = replace(call, args=args)
    core.do(call)
    core.do(batch_call(core.keys, "seal", b"G"))


def lease(core: Core, letters: str = "abcdef", *, jobs: bool = True) -> tuple[bytes, Opened]:
    batch(core, letters, jobs=jobs)
    return core.opened("t", "tn", len(letters))


def open_a_batch(core: Core) -> Call[Any]:
    return batch_call(core.keys, "open", b"G", life_seconds=60)


def seal_an_empty_batch(core: Core) -> Call[Any]:
    core.do(open_a_batch(core))
    return batch_call(core.keys, "seal", b"G")


def seal_what_has_ended(core: Core) -> Call[Any]:
    core.do(publish(core, "a"))
    token, _ = core.opened("t", "tn", 1)
    core.do(core.settle("t", token, verdict("ack", "1")))
    return batch_call(core.keys, "seal", b"G")


def read_a_batch(core: Core) -> Call[Any]:
    batch(core)
    return batch_call(core.keys, "status", b"G")


def ask_what_has_ended(core: Core) -> Call[Any]:
    core.do(seal_an_empty_batch(core))
    return ended_call(core.keys, [b"b:G", b"b:H"])


def publish_to_a_batch(core: Core) -> Call[Any]:
    core.do(core.publish("earlier", "b", keyed=True))
    return publish(core, "a", "b", "c", keyed=True)


def publish_to_a_batch_for_later(core: Core) -> Call[Any]:
    return publish(core, "a", "b", delay_seconds=100)


def publish_to_a_sealed_batch(core: Core) -> Call[Any]:
    batch(core)
    return publish(core, "a", call=1)


def publish_to_a_batch_that_is_gone(core: Core) -> Call[Any]:
    call = publish(core, "a")
    core.client.delete(core.keys.tracking)
    return call


def publish_dropping_tracked(core: Core) -> Call[Any]:
    batch(core)
    waiting = core.client.llen(core.keys.pending) + core.client.zcard(core.keys.delayed)
    return core.publish("z", "x", "y", max_pending_length=waiting, overload="drop_oldest")


def claim_tracked(core: Core) -> Call[Any]:
    batch(core)
    return core.claim("t", "tn", 4)


def take_over_tracked(core: Core) -> Call[Any]:
    token, _ = lease(core)
    return core.claim_known("t", "heir", takeover=token)


def ack_whole_tracked(core: Core) -> Call[Any]:
    token, _ = lease(core, jobs=False)
    return core.ack_whole("t", token, 6)


def ack_whole_of_jobs(core: Core) -> Call[Any]:
    token, _ = lease(core)
    return core.ack_whole("t", token, 6)


def settle_tracked(core: Core) -> Call[Any]:
    core.rules = replace(core.rules, completed_cap=1, failed_cap=1)
    token, _ = lease(core)
    return core.settle(
        "t",
        token,
        verdict("ack", "1", why=b"result"),
        verdict("nack", "2", why=WHY),
        verdict("nack", "3", delay_seconds=1000, why=WHY),
        verdict("release", "4"),
        verdict("bury", "5", why=WHY),
        verdict("discard", "6", why=WHY),
    )


def settle_beyond_the_dead_cap(core: Core) -> Call[Any]:
    core.rules = replace(core.rules, max_dead_length=1)
    token, _ = lease(core)
    return core.settle("t", token, verdict("bury", "1-3", why=WHY))


def reap_tracked(core: Core) -> Call[Any]:
    token, _ = lease(core)
    core.do(core.settle("t", token, verdict("ack", "2")))
    state.expire(core.client, core.queue, "t")
    return core.reap("t")


def reap_tracked_to_death(core: Core) -> Call[Any]:
    core.rules = replace(core.rules, max_delivery_count=1)
    lease(core, "a")
    state.expire(core.client, core.queue, "t")
    return core.reap("t")


def promote_tracked(core: Core) -> Call[Any]:
    core.do(publish(core, *"abc", delay_seconds=1000))
    state.fall_due(core.client, core.queue)
    return core.promote()


def conclude_tracked(core: Core) -> Call[Any]:
    token, opened = lease(core, "ab")
    core.do(core.settle("t", token, verdict("ack", "1-2")))
    ended = Conclusion(b"t", token, 3600, True, False, why=b"\x1fE\x1ft")
    return conclude_call(core.keys, core.rules, ended, 1, 1, 1, opened.entries)


def cancel_tracked(core: Core) -> Call[Any]:
    batch(core)
    page = core.do(scan_call(core.keys, "pending", page_size=10))
    return cancel_call(core.keys, "pending", STEP, [Target(b"G:0-1"), Target(b"G:0-3")], 0, page)


def cancel_delayed_tracked(core: Core) -> Call[Any]:
    core.do(publish(core, *"abc", delay_seconds=1000))
    page = core.do(scan_call(core.keys, "delayed", page_size=10))
    named = [Target(entry) for entry in core.client.zrange(core.keys.delayed, 0, -1) if entry[:1] == b"7"]
    return cancel_call(core.keys, "delayed", STEP, named[:2], 0, page)


def purge_tracked(core: Core) -> Call[Any]:
    batch(core)
    return purge_call(core.keys, "pending", STEP, [Target(b"G:0-0"), Target(b"G:0-1")])


def _dead(core: Core) -> list[Target]:
    token, _ = lease(core)
    core.do(core.settle("t", token, verdict("bury", "1-3"), verdict("ack", "4-6")))
    return [Target(b"G:0-0"), Target(b"G:0-2")]


def purge_dead_tracked(core: Core) -> Call[Any]:
    return purge_call(core.keys, "dead", STEP, _dead(core))


def redrive_tracked(core: Core) -> Call[Any]:
    return redrive_call(core.keys, STEP, _dead(core), mark=1 << 44, patient=False)


READING = [read_a_batch, ask_what_has_ended]
PUBLISHING = [
    open_a_batch, seal_an_empty_batch, seal_what_has_ended, publish_to_a_batch, publish_to_a_batch_for_later,
    publish_to_a_sealed_batch, publish_to_a_batch_that_is_gone,
]  # fmt: skip
DROPPING = [
    publish_dropping_tracked, settle_beyond_the_dead_cap, cancel_tracked, cancel_delayed_tracked, purge_tracked,
    purge_dead_tracked,
]  # fmt: skip
# Where no message is dropped on purpose.
KEEPING = [claim_tracked, take_over_tracked, reap_tracked, reap_tracked_to_death, promote_tracked, redrive_tracked]
# What a maintenance call or a cap did is reported once.
TOLD_ONCE = [reap_tracked, reap_tracked_to_death, promote_tracked, settle_beyond_the_dead_cap, conclude_tracked]
ENDING = [ack_whole_tracked, ack_whole_of_jobs, settle_tracked, conclude_tracked]
CASES = [*READING, *PUBLISHING, *DROPPING, *KEEPING, *ENDING]

_ALL = "tracking tracking_ended tracking_news"
TYPES = {
    "batch": (seal_an_empty_batch, _ALL),
    "ended": (ask_what_has_ended, "tracking_ended tracking_news"),
    "publish to a batch": (publish_to_a_batch, _ALL),
    "publish dropping tracked": (publish_dropping_tracked, "tracking_ended tracking_news"),
    "claim tracked": (claim_tracked, _ALL),
    "claim_known tracked": (take_over_tracked, _ALL),
    "ack_whole tracked": (ack_whole_tracked, _ALL),
    "settle tracked": (settle_tracked, _ALL),
    "settle beyond the cap": (settle_beyond_the_dead_cap, _ALL),
    "reap tracked": (reap_tracked, _ALL),
    "promote tracked": (promote_tracked, _ALL),
    "conclude tracked": (conclude_tracked, _ALL),
    "cancel tracked": (cancel_tracked, _ALL),
    "purge tracked": (purge_tracked, _ALL),
    "purge dead of a batch": (purge_dead_tracked, _ALL),
    "redrive tracked": (redrive_tracked, _ALL),
}
