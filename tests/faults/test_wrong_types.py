"""Something else under one of our keys: the call is refused whole, and the error names the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate._redis.error_mapping import expected_type
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.conclude import Conclusion, conclude_call
from sluicegate.core.transitions.in_flight import LeasePage, in_flight_call
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.core.transitions.peek import peek_call, peek_pending_call
from sluicegate.errors import WrongKeyTypeError
from tests.faults import (
    admin_cases,
    block_cases,
    consumer_cases,
    group_cases,
    job_cases,
    run_cases,
    stream_cases,
    tracking_cases,
    write_cases,
)
from tests.support import state
from tests.support.core_calls import Core, verdict

Prepare = Callable[[Core], Call[Any]]
MOVED_TO = "leases returned delayed dead dead_records counters wakeup set_aside"
ENTRIES = [b"1%028x" % number + b"id\x1f\x1f\x1fpayload" for number in range(2)]
HELD = LeasePage(b"0", [b"l"])


def busy(core: Core) -> bytes:
    """Messages in every state; returns the token of the lease `l` over a to f."""
    core.do(core.publish("b", *"abcdefgh"))
    core.bind("d", "f", "g")
    token, _ = core.opened("l", "n", 6)
    core.do(
        core.settle("l", token, verdict("nack", "1"), verdict("nack", "2", delay_seconds=1000), verdict("bury", "3"))
    )
    return token


def publish_keyed(core: Core) -> Call[Any]:
    return core.publish("c", "x", "y", keyed=True)


def publish_with_receipt(core: Core) -> Call[Any]:
    return core.publish("c", "x", "y")


def publish_delayed_with_a_cap(core: Core) -> Call[Any]:
    return core.publish("c", "x", "y", keyed=True, receipt=600, delay_seconds=5, max_pending_length=99)


def claim_anew(core: Core) -> Call[Any]:
    core.client.zremrangebyrank(core.keys.returned, 0, -1)  # so that the claim looks at what is pending
    core.client.rpush(core.keys.pending, b"junk")
    return core.claim("m", "n2", 3, maintain=False)


def adopt(core: Core) -> Call[Any]:
    return core.claim_known("l", "n")


def ack_whole(core: Core) -> Call[Any]:
    token, opened = core.opened("m", "n2", 9)
    return core.ack_whole("m", token, len(opened.entries))


def ack_and_claim(core: Core) -> Call[Any]:
    core.client.zremrangebyrank(core.keys.returned, 0, -1)
    token, _ = core.opened("m", "m", 1)
    core.do(core.publish("c", "x"))
    return core.ack_and_claim("o", ("m", token))


def settle(core: Core, token: bytes) -> Call[Any]:
    core.rules = QueueRules(max_delivery_count=10, max_dead_length=1, completed_cap=5, failed_cap=5)
    return core.settle(
        "l",
        token,
        verdict("ack", "4"),
        verdict("release", "5"),
        verdict("nack", "6", delay_seconds=5),
        verdict("bury", "6"),
    )


def conclude(core: Core, token: bytes) -> Call[Any]:
    core.rules = QueueRules(completed_cap=5, failed_cap=5)
    core.do(core.settle("l", token, verdict("ack", "4-6")))
    ended = Conclusion(b"l", token, 3600, True, True)
    return conclude_call(core.keys, core.rules, ended, 1, 2, 1, ENTRIES)


def reap(core: Core) -> Call[Any]:
    state.expire(core.client, core.queue, "l")
    return core.reap("l")


def reap_to_death(core: Core) -> Call[Any]:
    core.rules = QueueRules(max_delivery_count=1, max_dead_length=1)
    core.client.zremrangebyrank(core.keys.returned, 0, -1)
    core.opened("r", "n3", 1)
    state.expire(core.client, core.queue, "r")
    return core.reap("r", wanted=[b"g"])


def promote(core: Core) -> Call[Any]:
    state.fall_due(core.client, core.queue)
    return core.promote()


def depth(core: Core) -> Call[Any]:
    state.expire(core.client, core.queue, "l")
    return core.depth(core.keys.lease_name("l"))


def peek(where: str) -> Callable[[Core, bytes], Call[Any]]:
    return lambda core, _: peek_call(core.keys, where, 5)


def alone(prepare: Prepare) -> Callable[[Core, bytes], Call[Any]]:
    """Let a case have the queue to itself."""

    def prepared(core: Core, _: bytes) -> Call[Any]:
        core.client.flushall()
        return prepare(core)

    return prepared


def without_token(prepare: Prepare) -> Callable[[Core, bytes], Call[Any]]:
    return lambda core, _: prepare(core)


CASES: dict[str, tuple[Callable[[Core, bytes], Call[Any]], str]] = {
    "publish with keys": (without_token(publish_keyed), "pending counters wakeup buckets"),
    "publish with a receipt": (without_token(publish_with_receipt), "pending counters wakeup receipt"),
    "publish with a delay and a cap": (
        without_token(publish_delayed_with_a_cap),
        "pending counters wakeup receipt returned delayed buckets",
    ),
    "claim": (
        without_token(claim_anew),
        "lease leases closed pending returned delayed counters wakeup dead dead_records set_aside",
    ),
    "claim_known": (without_token(adopt), "lease leases counters dead dead_records set_aside"),
    "ack_and_claim": (
        without_token(ack_and_claim),
        "lease leases closed pending returned delayed counters wakeup last_lease last_closed",
    ),
    "ack_whole": (without_token(ack_whole), "lease leases closed counters"),
    "settle": (
        settle,
        f"{MOVED_TO} lease closed completed failed marker_counters buckets",
    ),
    "extend": (lambda core, token: core.extend("l", token), "lease leases"),
    "conclude": (conclude, "closed leases counters completed failed"),
    "reap": (without_token(reap), "lease leases closed returned dead dead_records counters wakeup set_aside"),
    "reap to death": (without_token(reap_to_death), "dead dead_records marker_counters buckets"),
    "promote": (without_token(promote), "delayed pending returned wakeup counters"),
    "depth": (without_token(depth), "pending returned delayed leases dead counters expired"),
    "in_flight": (lambda core, _: in_flight_call(core.keys, HELD, count=5), "leases counters lease"),
    "manifest": (lambda core, _: manifest_call(core.keys, b"l", 1, 2), "lease leases counters"),
    "manifest of an ended lease": (lambda core, _: manifest_call(core.keys, b"gone"), "closed"),
    "peek pending": (lambda core, _: peek_pending_call(core.keys, 5, offset=1), "source counters"),
    "peek returned": (peek("returned"), "source"),
    "peek delayed": (peek("delayed"), "source"),
    "peek dead": (peek("dead"), "source dead_records"),
}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in admin_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in run_cases.TYPES.items()}
BLOCKS = {name: (alone(prepare), roles) for name, (prepare, roles) in block_cases.TYPES.items()}
CASES |= BLOCKS
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in consumer_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in write_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in tracking_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in stream_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in group_cases.TYPES.items()}
CASES |= {name: (without_token(prepare), roles) for name, (prepare, roles) in job_cases.TYPES.items()}
EACH = [(name, role) for name, (_, roles) in CASES.items() for role in roles.split()]


def everything(client: redis.Redis) -> dict[bytes, object]:
    """Return what is stored; the order of a large hash changes by itself."""
    return state.dumps(client)


@pytest.mark.parametrize(("name", "role"), EACH, ids=lambda value: str(value).replace(" ", "-"))
def test_a_key_of_another_type(bare_client: redis.Redis, name: str, role: str) -> None:
    core = Core(bare_client)
    call = CASES[name][0](core, busy(core))
    position = call.script.header.keys.index(role)
    for at in range(position, len(call.keys) if role == call.script.header.keys[-1] else position + 1):
        key = call.keys[at]
        kept = bare_client.dump(key)
        bare_client.delete(key)
        _, expected = expected_type(call, at)
        if expected == "string":
            bare_client.rpush(key, "not ours")
        else:
            bare_client.set(key, "not ours")
        before = everything(bare_client)
        with pytest.raises(WrongKeyTypeError) as caught:
            core.do(call)
        assert key.decode() in str(caught.value)
        assert everything(bare_client) == before, "nothing was changed"
        bare_client.delete(key)
        if kept is not None:
            bare_client.restore(key, 0, kept)


def test_every_key_of_every_script_is_among_them() -> None:
    tried: dict[str, set[str]] = {}
    for name, (_, roles) in CASES.items():
        script = {"resume": "pause"}.get(name, name.split()[0])
        tried.setdefault(script, set()).update(roles.split())
    # These report a key of another type, or read none; the doctor's tests have every type at every key.
    others = {"eviction", "examine", "probe_rights"}
    reading = {name: set(script.header.keys) for name, script in scripts.load_all().items() if name not in others}
    reading["delete_group"] -= {"others"}  # which it deletes, whatever they are
    for name in ("cancel", "purge", "reap", "settle"):
        reading[name] -= {"pending"}  # of which they read the groups; a key of another type has none
    assert reading == tried


def test_the_error_says_what_was_found(bare_client: redis.Redis) -> None:
    core = Core(bare_client, "a:b")
    bare_client.set(core.keys.pending, "not ours")
    with pytest.raises(WrongKeyTypeError) as caught:
        core.do(core.publish("b", "x"))
    text = str(caught.value)
    assert "sluicegate:{a%3Ab}:pending holds a string where the queue keeps a list" in text
    assert "not ours" not in text
