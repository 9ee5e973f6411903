"""Publishing under a key that is held until its message ends."""

from __future__ import annotations

import pytest
import redis

from sluicegate.clock import elapsed_clock
from sluicegate.core.entry import is_entry
from sluicegate.core.publishing import Publishing
from sluicegate.core.transitions.publish import Batch, Published, publish_operation
from tests.conformance.running import Drive
from tests.support import markers, state
from tests.support.core_calls import Core

WEEK = 7 * 86400


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def publishing(core: Core, window: float = 3600) -> Publishing:
    return Publishing(core.keys, str, window, 120, policy="until_acked")


def batch_of(publishing: Publishing, batch_id: bytes, payloads: list[str], delay_seconds: float = 0) -> Batch:
    """Return what one call publishes."""
    made = next(publishing.batches(payloads, new_id=lambda: batch_id, delay_seconds=delay_seconds))
    assert isinstance(made, Batch)
    return made


def test_entries_say_that_their_key_is_to_be_freed(core: Core, client: redis.Redis) -> None:
    drive = Drive(client)
    drive(publish_operation(core.keys, batch_of(publishing(core), b"b", ["x", "y"]), clock=elapsed_clock))
    drive(publish_operation(core.keys, batch_of(publishing(core), b"c", ["z"], delay_seconds=60), clock=elapsed_clock))
    found = state.contents(client, core.queue)
    entries = [*found.pending, *found.delayed]
    assert [entry[:1] for entry in entries] == [b"2"] * 3
    assert all(is_entry(entry) for entry in entries)
    assert found.ids()["pending"] == ["b-0", "b-1"]


def test_without_a_key_function_nothing_is_to_be_freed(core: Core, client: redis.Redis) -> None:
    keyless = Publishing(core.keys, None, 3600, 120, policy="until_acked")
    Drive(client)(publish_operation(core.keys, batch_of(keyless, b"b", ["x"]), clock=elapsed_clock))
    assert state.contents(client, core.queue).pending[0][:1] == b"1"


@pytest.mark.parametrize(
    ("window", "delay", "life"), [(60, 0, WEEK), (60, 1000, WEEK + 1000), (2 * WEEK, 1000, 2 * WEEK + 1000)]
)
def test_a_marker_ends_by_itself_only_after_long(
    core: Core, client: redis.Redis, window: float, delay: float, life: float
) -> None:
    batch = batch_of(publishing(core, window), b"b", ["x"], delay_seconds=delay)
    Drive(client)(publish_operation(core.keys, batch, clock=elapsed_clock))
    assert markers.owner(client, core.keys, b"x") == b"b-0"
    assert markers.left_ms(client, core.keys, b"x") / 1000 == pytest.approx(life, abs=20)


def test_a_repeat_after_the_key_was_freed_publishes_nothing_again(core: Core, client: redis.Redis) -> None:
    batch = batch_of(publishing(core), b"b", ["x", "y", "x"])
    drive = Drive(client)
    first = drive(publish_operation(core.keys, batch, clock=elapsed_clock))
    assert first == Published(2, {2: "b-0"})
    client.delete(core.keys.pending)
    assert [markers.release(client, core.keys, key) for key in (b"x", b"y")] == [1, 1]
    again = publish_operation(core.keys, batch, clock=elapsed_clock, born=elapsed_clock() - 5)
    assert drive(again) == first
    assert (client.exists(core.keys.pending), markers.held(client, core.keys)) == (0, {})


def test_a_freed_key_may_be_published_under_again(core: Core, client: redis.Redis) -> None:
    drive = Drive(client)
    drive(publish_operation(core.keys, batch_of(publishing(core), b"b", ["x"]), clock=elapsed_clock))
    held = publish_operation(core.keys, batch_of(publishing(core), b"c", ["x"]), clock=elapsed_clock)
    assert drive(held) == Published(0, {0: "b-0"})
    markers.release(client, core.keys, b"x")
    free = publish_operation(core.keys, batch_of(publishing(core), b"d", ["x"]), clock=elapsed_clock)
    assert drive(free) == Published(1, {})
