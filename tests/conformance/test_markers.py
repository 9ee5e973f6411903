"""Deduplication markers in generations and buckets: an exact window, growth, and clients that know an older chain."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import ChainChanged
from sluicegate.core.keys import QueueKeys
from sluicegate.core.marker_chain import MarkerChain
from sluicegate.core.transitions.publish import Published, publish_call
from sluicegate.errors import PublishUnknownError
from tests.support import markers, state
from tests.support.core_calls import Core, verdict
from tests.support.flavours import MakeQueue

HOUR_MS = 3_600_000


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def chain(client: redis.Redis, keys: QueueKeys) -> list[tuple[int, int, int]]:
    """Return number, bits and span of the stored generations."""
    return [(one.number, one.bits, one.span_ms) for one in markers.known(client, keys)]


def test_a_window_is_exact_within_its_generation(core: Core, client: redis.Redis) -> None:
    """A marker is held until its own expiry, though its bucket stays for another window."""
    core.do(core.publish("b", "a", keyed=True, window=3600))
    left = markers.left_ms(client, core.keys, b"a")
    assert HOUR_MS - 20_000 < left <= HOUR_MS
    (bucket,) = client.keys("*:markers:*")
    assert HOUR_MS < client.pttl(bucket) <= 2 * HOUR_MS
    assert core.do(core.publish("c", "a", keyed=True)).duplicates == {0: "b-0"}
    markers.shorten(client, core.keys, b"a", px=0)
    assert core.do(core.publish("d", "a", keyed=True)) == Published(1, {})
    assert markers.owner(client, core.keys, b"a") == b"d-0"


@pytest.mark.parametrize(("count", "encodings"), [(4, ("listpack", "ziplist")), (200, ("hashtable",))])
def test_a_publish_of_many_makes_buckets_that_are_searched_by_an_index(
    core: Core, client: redis.Redis, count: int, encodings: tuple[str, ...]
) -> None:
    """A bucket that starts with few fields stays small; either has no other fields than markers."""
    names = [f"k{number}" for number in range(count)]
    core.do(core.publish("b", *names, keyed=True))
    buckets = client.keys("*:markers:*")
    assert len(buckets) == (1 if count < 100 else 16)
    assert all(client.object("encoding", bucket).decode() in encodings for bucket in buckets)
    assert {name for bucket in buckets for name in client.hkeys(bucket)} == {name.encode() for name in names}
    assert all(HOUR_MS < client.pttl(bucket) <= 2 * HOUR_MS for bucket in buckets)
    assert len(core.do(core.publish("c", *names, keyed=True)).duplicates) == count


def test_a_key_is_refused_by_the_message_of_an_older_generation(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "a", "b", keyed=True))
    markers.rotate(client, core.keys, bits=4)
    published = core.do(core.publish("c", "x", "b", "y", "a", "x", keyed=True))
    assert published == Published(2, {1: "b-1", 3: "b-0", 4: "c-0"})
    assert markers.held(client, core.keys) == {b"a": b"b-0", b"b": b"b-1", b"x": b"c-0", b"y": b"c-2"}


def test_an_expired_marker_of_an_older_generation_does_not_hide_a_newer_one(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "a", keyed=True))
    markers.shorten(client, core.keys, b"a", px=0)
    markers.rotate(client, core.keys)
    core.do(core.publish("c", "a", keyed=True))
    assert core.do(core.publish("d", "a", keyed=True)).duplicates == {0: "c-0"}


def test_a_repeat_finds_its_own_messages_in_an_older_generation(core: Core, client: redis.Redis) -> None:
    """The reply was lost, and another client opened a generation before the repeat."""
    call = core.publish("b", *"abc", keyed=True)
    first = core.do(call)
    markers.rotate(client, core.keys, bits=4)
    assert core.do(call) == first == Published(3, {})
    assert state.counters(client, core.queue)["published"] == 3
    assert len(state.contents(client, core.queue).pending) == 3


def test_a_call_by_an_older_chain_changes_nothing(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("a", "a", keyed=True))
    call = core.publish("b", "b", keyed=True)
    markers.rotate(client, core.keys)
    before = state.dumps(client)
    reply: Any = core.gateway.execute(call, retry=False)
    assert isinstance(reply, ChainChanged)
    assert state.dumps(client) == before


def test_two_clients_publish_while_generations_change(make_queue: MakeQueue, client: redis.Redis) -> None:
    """Each learns the chain from the answer to a call, and no key is accepted twice."""
    queues = [make_queue(get_deduplication_key="id") for _ in range(2)]
    accepted = 0
    for turn in range(8):
        for queue in queues:
            accepted += queue.publish_many({"id": number} for number in range(turn * 10, turn * 10 + 30)).accepted
            if turn % 3 == 1:
                markers.rotate(client, QueueKeys("orders"), bits=4 * (turn % 2))
    assert accepted == 100
    assert queues[0].depth().pending == 100
    assert len(markers.held(client, QueueKeys("orders"))) == 100


def test_a_generation_that_is_full_is_followed_by_one_of_sixteen_buckets(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(get_deduplication_key="id")
    rows = [{"id": f"{number:024}"} for number in range(12_000)]
    assert queue.publish_many(rows[:99]).accepted == 99
    assert queue.publish_many(rows).accepted == 12_000 - 99
    assert chain(client, QueueKeys("orders")) == [(1, 0, HOUR_MS), (2, 4, HOUR_MS)]
    assert queue.publish_many(rows).duplicates == 12_000
    assert max(client.memory_usage(key, samples=0) for key in client.scan_iter("*:markers:*")) < 1_000_000
    assert all(client.pttl(key) > 0 for key in client.scan_iter("*:markers:*"))


def test_a_queue_whose_first_call_is_large_starts_with_sixteen_buckets(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    """Its later calls then look into one generation; a client that knows nothing yet learns of it."""
    rows = [{"id": f"{number:024}"} for number in range(12_000)]
    assert make_queue(get_deduplication_key="id").publish_many(rows).accepted == 12_000
    assert chain(client, QueueKeys("orders")) == [(1, 4, HOUR_MS)]
    assert make_queue(get_deduplication_key="id").publish_many(rows[:50]).duplicates == 50
    assert make_queue(get_deduplication_key="id").publish_many(rows[:500]).duplicates == 500


def test_a_generation_closes_when_its_markers_could_outlive_it(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "a", keyed=True))
    now = markers.now_ms(client)
    old, gone = b"7:4:3600000:%d;" % (now + HOUR_MS - 1000), b"6:4:3600000:%d;" % (now - 1)
    client.hset(core.keys.counters, "markers", gone + old)
    assert core.do(core.publish("c", "b", keyed=True)).accepted == 1
    assert chain(client, core.keys) == [(7, 4, HOUR_MS), (8, 0, HOUR_MS)], "a nearly empty one is followed by a smaller"


def test_lives_of_other_lengths_have_generations_of_their_own(core: Core, client: redis.Redis) -> None:
    """A marker for an hour is not kept for weeks because another one is."""
    core.do(core.publish("b", "a", keyed=True, window=3600))
    core.do(core.publish("c", "b", keyed=True, window=7 * 86_400))
    core.do(core.publish("d", "c", keyed=True, window=7 * 86_400, delay_seconds=100, kind=b"2"))
    core.do(core.publish("e", "d", keyed=True, window=3600))
    week = 7 * 24 * HOUR_MS
    assert chain(client, core.keys) == [(1, 0, HOUR_MS), (2, 0, week)]
    assert client.hkeys(core.keys.markers.bucket(core.keys.markers.generations[0], b"d")) == [b"a", b"d"]
    lives = [markers.left_ms(client, core.keys, key) / 1000 for key in (b"a", b"b", b"c", b"d")]
    assert lives == [pytest.approx(life, abs=20) for life in (3600, week / 1000, week / 1000 + 100, 3600)]


def test_a_marker_is_freed_and_prolonged_in_any_generation(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", *"abcd", keyed=True, kind=b"2", window=7 * 86_400))
    markers.rotate(client, core.keys, span_ms=1000 * HOUR_MS, bits=4)
    token, _ = core.opened("l", "n")
    far = 300 * 86_400
    core.do(core.settle("l", token, verdict("ack", "1"), verdict("nack", "2", delay_seconds=far), verdict("bury", "3")))
    assert markers.held(client, core.keys) == {b"b": b"b-1", b"d": b"b-3"}
    assert markers.left_ms(client, core.keys, b"b") > far * 1000
    assert sum(client.hexists(key, "b") for key in client.scan_iter("*:markers:*")) == 1, "and only in one"


def test_a_settle_by_an_older_chain_is_made_again(core: Core, client: redis.Redis) -> None:
    core.do(core.publish("b", "a", keyed=True, kind=b"2"))
    token, _ = core.opened("l", "n")
    call = core.settle("l", token, verdict("ack", "1"))
    markers.rotate(client, core.keys, bits=4)
    assert isinstance(core.gateway.execute(call, retry=False), ChainChanged)
    assert core.owner("a") == "b-0"
    assert core.do(call).lost == []
    assert core.owner("a") is None


@pytest.mark.parametrize("text", [b"garbage", b"1:0:3600000:99999999999999", b"9" * 5000, b"1:99:5:9;x", b";;;"])
def test_a_chain_that_was_overwritten_starts_again(core: Core, client: redis.Redis, text: bytes) -> None:
    core.do(core.publish("b", "a", keyed=True))
    client.hset(core.keys.counters, "markers", text)
    assert core.do(core.publish("c", "b", keyed=True)).accepted == 1
    assert core.do(core.publish("d", "b", keyed=True)).duplicates == {0: "c-0"}
    assert chain(client, core.keys) == [(1, 0, HOUR_MS)]


def test_lost_counters_are_restored_by_a_client_that_knows_the_chain(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish({"id": 1})
    client.delete(QueueKeys("orders").counters)
    assert queue.publish_many([{"id": 1}, {"id": 2}]).duplicates == 1
    assert make_queue(get_deduplication_key="id").publish_many([{"id": 1}, {"id": 2}]).duplicates == 2


def test_a_bucket_without_an_end_gets_one(core: Core, client: redis.Redis) -> None:
    """A script was stopped after it had made the bucket."""
    core.do(core.publish("b", "a", keyed=True))
    (bucket,) = client.keys("*:markers:*")
    client.persist(bucket)
    for number in range(16):  # of few messages, one publish in sixteen looks
        core.do(core.publish(f"c{number}", f"b{number}", keyed=True))
    assert client.pttl(bucket) > HOUR_MS


def test_publish_again_names_the_buckets_of_the_new_chain(make_queue: MakeQueue, client: redis.Redis) -> None:
    """The error carries the batch, whose call is prepared anew."""
    queue = make_queue(get_deduplication_key="id")
    queue.publish({"id": 0})
    (batch,) = queue.session.publishing.batches([{"id": 1}, {"id": 2}], new_id=lambda: b"B" * 16)
    call = publish_call(queue.session.keys, batch, age_seconds=0)
    Core(client).do(call)
    unknown = PublishUnknownError("?", ids=[], calls=(call,), born=elapsed_clock(), batch=batch)
    markers.rotate(client, QueueKeys("orders"), bits=4)
    assert queue.publish_again(unknown).accepted == 2
    assert queue.depth().pending == 3


def test_a_queue_without_keys_has_no_chain(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abc")
    queue.claim(3).ack()
    assert client.hget(QueueKeys("orders").counters, "markers") is None


def test_keys_of_a_call_share_the_queues_slot() -> None:
    keys = MarkerChain(b"sluicegate:{q}:markers:")
    keys.learn(b"1:0:1:1;2:8:1:1;3:16:1:1;")
    located = keys.locate([b"%d" % number for number in range(500)])
    assert all(bucket.startswith(b"sluicegate:{q}:markers:") for bucket in located.buckets)
    assert len(located.buckets) == len(set(located.buckets)) > 600
