"""What a newer version has stored is refused by every script that reads or writes messages, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.transitions.examine import examine_call
from sluicegate.core.transitions.in_flight import LeasePage, in_flight_call
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.core.transitions.peek import peek_call, peek_pending_call
from sluicegate.core.transitions.repair import repair_call
from sluicegate.errors import ConfigurationError
from tests.faults import admin_cases, group_cases
from tests.support import state
from tests.support.core_calls import Core, verdict

MakeQueue = Callable[..., RedisMessageQueue]
REFUSED = r"newer Sluicegate \(layout 4, .*upgrade the client"


@pytest.fixture
def core(bare_client: redis.Redis) -> Core:
    return Core(bare_client)


def held(core: Core) -> bytes:
    """Return the token of a lease over two of three messages."""
    core.do(core.publish("b", *"abc"))
    return core.opened("l", "n", 2)[0]


def settle(core: Core) -> Call[Any]:
    return core.settle("l", held(core), verdict("ack", "1"), verdict("nack", "2"))


def take_over(core: Core) -> Call[Any]:
    return core.claim_known("l", "m", takeover=held(core))


def reap(core: Core) -> Call[Any]:
    held(core)
    state.expire(core.client, core.queue, "l")
    return core.reap("l")


def promote(core: Core) -> Call[Any]:
    core.do(core.publish("b", "a", delay_seconds=5))
    state.fall_due(core.client, core.queue)
    return core.promote()


def look(make: Callable[[Core], Call[Any]]) -> Callable[[Core], Call[Any]]:
    """Let a call look at a queue with a lease."""

    def prepare(core: Core) -> Call[Any]:
        held(core)
        return make(core)

    return prepare


CASES: dict[str, Callable[[Core], Call[Any]]] = {
    "publish": lambda core: core.publish("b", "a"),
    "claim": look(lambda core: core.claim("m", "m")),
    "claim_known": take_over,
    "settle": settle,
    "reap": reap,
    "promote": promote,
    "depth": look(Core.depth),
    "peek pending": look(lambda core: peek_pending_call(core.keys, 5)),
    "peek returned": look(lambda core: peek_call(core.keys, "returned", 5)),
    "scan": admin_cases.scan_a_list,
    "cancel": admin_cases.cancel_pending,
    "purge": admin_cases.purge_pending,
    "redrive": admin_cases.redrive,
    "in_flight": look(lambda core: in_flight_call(core.keys, LeasePage(b"0", [b"l"]), count=5)),
    "manifest": look(lambda core: manifest_call(core.keys, b"l", 1, 2)),
    "examine": look(lambda core: examine_call(core.keys)),
    "repair": look(lambda core: repair_call(core.keys, "counters")),
    "adopt": group_cases.adopt,
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_a_word(core: Core, name: str) -> None:
    call = CASES[name](core)
    assert call.script.name == name.split(maxsplit=1)[0]
    counters = call.keys[call.script.header.keys.index("counters")]
    core.client.hset(counters, "layout", 4)
    before = state.dumps(core.client)
    with pytest.raises(ConfigurationError, match=REFUSED):
        core.do_once(call)
    assert state.dumps(core.client) == before
    core.client.hset(counters, "layout", 3)
    core.do_once(call)


def test_every_script_that_checks_it_is_among_them() -> None:
    checking = {name for name, script in scripts.load_all().items() if b"newer_layout" in script.text}
    assert checking == {name.split()[0] for name in CASES} | {"ack_and_claim"}


def test_a_step_leaves_it_to_the_usual_calls(core: Core) -> None:
    core.do(core.publish("b", "a", "b"))
    token, _ = core.opened("m", "m", 1)
    core.client.hset(core.keys.counters, "layout", 4)
    before = state.dumps(core.client)
    assert core.do(core.ack_and_claim("o", ("m", token))).how == "slow"
    assert state.dumps(core.client) == before


def test_a_whole_lease_is_acked_all_the_same(make_queue: MakeQueue, client: redis.Redis) -> None:
    """Its messages were read and handled before the upgrade; to refuse the ack would deliver them once more."""
    queue = make_queue()
    queue.publish_many("abc")
    lease = queue.claim(2)
    client.hset(queue.session.keys.counters, "layout", 4)
    lease.ack()
    assert client.exists(queue.session.keys.lease(lease.id.encode())) == 0
    with pytest.raises(ConfigurationError, match=REFUSED):
        queue.claim()
    client.hdel(queue.session.keys.counters, "layout")
    assert (queue.stats().acked, queue.depth().pending) == (2, 1)


def test_a_consumer_acks_its_message_before_it_is_refused(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_many("abc")
    handled = []

    def handle_all() -> None:
        for message in queue.consume(limit=3):
            handled.append(message.text())
            if len(handled) == 2:
                client.hset(queue.session.keys.counters, "layout", 4)

    with pytest.raises(ConfigurationError, match=REFUSED):
        handle_all()
    client.hdel(queue.session.keys.counters, "layout")
    assert (handled, queue.stats().acked, queue.depth().in_flight) == (["a", "b"], 2, 0)
