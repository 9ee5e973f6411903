"""A group of a stream behaves as a queue does, in both shells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import redis

from sluicegate.errors import ConfigurationError, GroupNotFoundError, LeaseLostError, OptionTypeError
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support import state
from tests.support.flavours import MakeGroup, MakeStream


@pytest.fixture
def stream(make_stream: MakeStream) -> RedisStreamQueue:
    """Return a stream."""
    return make_stream()


@pytest.fixture
def group(make_group: MakeGroup) -> ConsumerGroup:
    """Return a group of that stream."""
    return make_group()


def fail_at_first(group: ConsumerGroup) -> None:
    """Claim up to two messages, and fail at the first."""
    with group.claim(2) as lease:
        for message in lease:
            raise ValueError(f"{message.text()} is broken")


def test_every_group_gets_every_message_once(
    stream: RedisStreamQueue, group: ConsumerGroup, make_group: MakeGroup
) -> None:
    other, same = make_group(group="shipping"), make_group()
    group.create("beginning")
    stream.publish_many([{"n": n} for n in range(5)], headers={"kind": "test"})
    with group.claim(3) as lease, same.claim(10) as rest:
        assert [message.json() for message in lease] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert [message.json() for message in rest] == [{"n": 3}, {"n": 4}]
        assert rest.messages[0].headers == {"kind": "test"}
    with other.claim(10) as all_of_them:
        assert [message.json()["n"] for message in all_of_them] == list(range(5))
    assert [(one.depth().ready, one.stats().acked) for one in (group, other)] == [(0, 5), (0, 5)]
    assert stream.info().length == 5
    assert not group.claim(1)


def test_a_group_without_a_start_must_be_created(make_group: MakeGroup, stream: RedisStreamQueue) -> None:
    group = make_group(start=None)
    stream.publish("a")
    for use in (group.claim, group.depth, group.lag, group.peek):
        with pytest.raises(GroupNotFoundError, match=r"stream 'orders' has no group 'billing'.*start="):
            use()
    assert group.create("end")
    assert not group.create("end")
    assert group.lag() == 0
    with pytest.raises(ConfigurationError, match="created with start='end'"):
        group.create("beginning")


def test_a_late_group_starts_where_it_is_told(make_group: MakeGroup, stream: RedisStreamQueue) -> None:
    ids = stream.publish_many("abc").ids
    late = {
        "beginning": make_group(group="1", start="beginning"),
        "end": make_group(group="2", start="end"),
        "id": make_group(group="3", start=ids[1]),
        "time": make_group(group="4", start=datetime.now(UTC) - timedelta(hours=1)),
    }
    assert {start: one.lag() for start, one in late.items()} == {"beginning": 3, "end": 0, "id": 2, "time": 3}
    stream.publish("d")
    assert "".join(one.text() for one in late["id"].claim(9).messages) == "bcd"


def test_a_failed_message_comes_back_and_dies_in_its_group_only(
    stream: RedisStreamQueue, make_group: MakeGroup, client: redis.Redis
) -> None:
    group, other = make_group(max_delivery_count=2), make_group(group="other")
    other.create("beginning")
    stream.publish_many("ab")
    for _ in range(2):
        with pytest.raises(ValueError, match="a is broken"):
            fail_at_first(group)
        state.fall_due(client, "orders", group="billing")
    (dead,) = group.peek(state="dead")
    assert (dead.message.text(), dead.reason, dead.error) == ("a", "max_delivery_count", "a is broken")
    assert other.depth().dead == 0
    assert group.redrive().redriven == 1
    assert (group.depth().returned, group.depth().pending, stream.info().length) == (2, 0, 2)
    assert "".join(message.text() for message in group.claim(9).messages) == "ab"


def test_an_expired_lease_comes_back_with_its_count_and_its_late_ack_is_refused(
    stream: RedisStreamQueue, group: ConsumerGroup, client: redis.Redis
) -> None:
    group.create("beginning")
    stream.publish("a")
    first = group.claim(heartbeat=False)
    state.expire(client, "orders", group="billing")
    second = group.claim(heartbeat=False)
    assert (second.messages[0].id, second.messages[0].delivery_count) == (first.messages[0].id, 2)
    with pytest.raises(LeaseLostError):
        first.ack()
    second.ack()
    assert group.depth().ready == group.depth().in_flight == 0


def test_pause_histories_stats_and_purge(stream: RedisStreamQueue, make_group: MakeGroup) -> None:
    group = make_group(enable_completed_queue=True)
    group.create("beginning")
    ids = stream.publish_many("abcd").ids
    group.pause()
    assert group.claim().state.value == "paused"
    group.resume()
    group.claim(1).ack()
    assert [one.message.id for one in group.peek(state="completed")] == ids[:1]
    assert [one.id for one in group.peek(state="pending")] == ids[1:]
    assert group.purge("pending") == 3
    assert (group.lag(), group.stats().purged, group.stats().acked) == (0, 3, 1)
    assert not group.claim()
    stream.publish("e")
    assert group.claim().messages[0].text() == "e"


def test_cancel_acts_on_the_group_alone(stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    group.create("beginning")
    ids = stream.publish_many("abc").ids
    group.claim(2).release()
    with pytest.raises(ConfigurationError, match=rf"{ids[2]}.*stream\.cancel"):
        group.cancel([ids[0], ids[2]])
    assert group.depth().returned == 2
    assert group.cancel([ids[0], "unknown", "1-1"]) == [ids[0]]
    assert [message.id for message in group.claim(9).messages] == ids[1:]


def test_a_lease_survives_detach_attach_and_takeover(stream: RedisStreamQueue, make_group: MakeGroup) -> None:
    group, other = make_group(), make_group(group="other")
    group.create("beginning")
    other.create("beginning")
    stream.publish_many("ab")
    handle = group.claim(2, lease_id="l").detach()
    with pytest.raises(ConfigurationError, match="orders/other"):
        other.attach(handle)
    attached = group.attach(handle)
    taken = make_group(consumer="heir").claim(2, lease_id="l", take_over_after_seconds=0)
    with pytest.raises(LeaseLostError):
        attached.ack()
    assert [one.consumer for one in group.pending()] == ["heir", "heir"]
    taken.ack()
    assert group.pending() == []


def test_replay_delivers_again(stream: RedisStreamQueue, group: ConsumerGroup) -> None:
    group.create("beginning")
    ids = stream.publish_many("abc").ids
    group.claim(9).ack()
    assert group.replay(from_id=ids[1]) == ids[2]
    assert group.lag() == 2
    lease = group.claim(9)
    assert [message.text() for message in lease.messages] == ["b", "c"]
    lease.ack()


def test_delete_leaves_nothing_of_the_group(
    stream: RedisStreamQueue, group: ConsumerGroup, client: redis.Redis
) -> None:
    group.create("beginning")
    stream.publish_many("ab")
    group.claim(1, heartbeat=False)
    assert group.delete()
    assert not group.delete()
    assert [key for key in client.keys("*:group:*") if client.ttl(key) == -1] == []
    assert stream.info().length == 2


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"get_deduplication_key": "id"}, ConfigurationError, "stream"),
        ({"max_pending_length": 3}, ConfigurationError, "max_length"),
        ({"visibility_timeout": 3}, OptionTypeError, "visibility_timeout_seconds"),
        ({"consumer": " "}, ConfigurationError, "consumer"),
        ({"start": "soon"}, ConfigurationError, "start"),
    ],
)
def test_an_unfit_option_is_explained(options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ConsumerGroup("orders", "billing", url="redis://localhost", **options)  # type: ignore[arg-type]


def test_a_spec_makes_the_same_group() -> None:
    group = ConsumerGroup("orders", "billing", url="redis://localhost", start="beginning", max_delivery_count=3)
    spec = group.spec()
    assert (spec.kind, spec.group, spec.options) == (
        "group",
        "billing",
        {"start": "beginning", "max_delivery_count": 3},
    )
    again = ConsumerGroup.from_spec(type(spec).from_json(spec.to_json()))
    assert again.spec() == spec
    assert repr(again) == "ConsumerGroup('orders', 'billing')"
