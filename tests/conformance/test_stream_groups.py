"""Groups of a stream: where they start, what a replay delivers again, and what is left when one is deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import redis

from sluicegate import ConfigurationError, LeaseLostError
from sluicegate.core.keys import StreamKeys
from sluicegate.core.stream_ids import parse_stream_id
from sluicegate.core.transitions.groups import TEMPORARY_PREFIX, delete_group_call
from sluicegate.errors import GroupNotFoundError
from sluicegate.events import QueueEvent
from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.support.core_calls import Core
from tests.support.flavours import MakeStream

KEYS = StreamKeys("orders")


def claimed(group: ConsumerGroup, limit: int = 100) -> list[str]:
    """Claim and ack once; return the payloads."""
    with group.claim(limit) as lease:
        return [message.text() for message in lease]


def at(name: str) -> datetime:
    return datetime.fromtimestamp(parse_stream_id("id", name).ms / 1000, UTC)


@pytest.fixture
def stream(make_stream: MakeStream) -> RedisStreamQueue:
    return make_stream()


@pytest.fixture
def ids(stream: RedisStreamQueue, client: redis.Redis) -> list[str]:
    """Ten messages, `0` to `9`, a second apart; return their ids."""
    seconds, _ = client.time()
    names = [f"{(int(seconds) - 100 + number) * 1000}-0" for number in range(10)]
    for number, name in enumerate(names):
        client.xadd(KEYS.stream, {"data": str(number)}, id=name)
    return names


# ---------------------------------------------------------------------- where a group starts


def test_a_late_group_starts_at_the_beginning_the_end_an_id_or_a_time(stream: RedisStreamQueue, ids: list[str]) -> None:
    between = at(ids[5]) + timedelta(milliseconds=500)
    starts = {"all": "beginning", "none": "end", "id": ids[7], "gap": ids[7][:-1] + "1", "time": between}
    groups = {name: stream.group(name, start=start) for name, start in starts.items()}
    assert claimed(groups["none"]) == []
    stream.publish("10")
    assert claimed(groups["all"]) == [str(number) for number in range(11)]
    assert claimed(groups["none"]) == ["10"]
    assert claimed(groups["id"]) == ["7", "8", "9", "10"]
    assert claimed(groups["gap"]) == ["8", "9", "10"]
    assert claimed(groups["time"]) == ["6", "7", "8", "9", "10"]


def test_without_a_start_a_group_that_is_missing_is_an_error(stream: RedisStreamQueue, ids: list[str]) -> None:
    with pytest.raises(GroupNotFoundError, match=r"has no group 'g'; create it with group\.create\(start\)"):
        stream.group("g").claim()
    assert stream.groups() == []
    assert stream.group("g").create("beginning") is True
    assert claimed(stream.group("g"), 2) == ["0", "1"]


def test_a_group_may_come_before_the_first_message(stream: RedisStreamQueue) -> None:
    group = stream.group("g", start="end")
    assert claimed(group) == []
    assert stream.info().exists is True
    stream.publish("a")
    assert claimed(group) == ["a"]


def test_a_group_that_exists_stays_where_it_is(stream: RedisStreamQueue, ids: list[str]) -> None:
    assert stream.group("g").create("beginning") is True
    assert claimed(stream.group("g"), 4) == ["0", "1", "2", "3"]
    assert stream.group("g").create("beginning") is False
    assert claimed(stream.group("g", start="end"), 2) == ["4", "5"], "a start counts only for a group that is missing"
    with pytest.raises(ConfigurationError, match="was created with start='beginning', not 'end', and has read up to"):
        stream.group("g").create("end")
    assert claimed(stream.group("g")) == ["6", "7", "8", "9"]


def test_a_group_of_another_program_is_used_as_it_is(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    client.xgroup_create(KEYS.stream, "node", ids[6])
    assert stream.group("node").create("beginning") is False
    assert claimed(stream.group("node")) == ["7", "8", "9"]
    assert [(group.name, group.start) for group in stream.info().groups] == [("node", "")]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("", "start must be 'beginning', 'end', an id"),
        ("start", "start must be 'beginning', 'end', an id"),
        ("$", "start must be 'beginning', 'end', an id"),
        ("1-2-3", "start must be 'beginning', 'end', an id"),
        ("99999999999999999999-0", "start must be an id of a stream"),
        (7, "start must be an aware datetime, not int"),
        (datetime(2026, 1, 1), "naive datetime"),  # noqa: DTZ001
        (None, "start is missing"),
    ],
)
def test_a_start_that_is_none_is_refused(stream: RedisStreamQueue, start: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        stream.group("g").create(start)  # type: ignore[arg-type]
    assert stream.info().exists is False


@pytest.mark.parametrize("name", ["", " \t"])
def test_a_blank_group_is_refused(stream: RedisStreamQueue, name: str) -> None:
    with pytest.raises(ConfigurationError, match="group name is blank"):
        stream.group(name)


# ---------------------------------------------------------------------- replay


def test_a_replay_delivers_a_part_of_the_history_to_a_group_of_its_own(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    group = stream.group("g", start="beginning")
    assert len(claimed(group)) == 10
    with stream.replay(from_id=ids[8]) as again:
        assert claimed(again) == ["8", "9"]
        stream.publish("10")
        assert claimed(again) == ["10"]
        (name,) = [name for name in stream.groups() if name != "g"]
        assert name.startswith(TEMPORARY_PREFIX)
    assert stream.groups() == ["g"]
    assert client.hkeys(KEYS.groups) == [b"g"]
    left = client.keys(f"*{TEMPORARY_PREFIX}*")
    assert [key for key in left if client.pttl(key) < 0] == [], "nothing is left of it, but records that expire"
    assert claimed(group) == ["10"]
    with stream.replay(from_time=at(ids[7])) as again:
        assert claimed(again) == ["7", "8", "9", "10"]


def test_a_replay_that_fails_leaves_no_group(stream: RedisStreamQueue, ids: list[str]) -> None:
    again = stream.replay(from_id="0")

    def fail() -> None:
        with again:
            again.claim(3)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert stream.groups() == []


def test_an_existing_group_is_moved_back(stream: RedisStreamQueue, ids: list[str]) -> None:
    events: list[QueueEvent] = []
    group = stream.group("g", start="beginning", on_event=events.append)
    assert len(claimed(group)) == 10
    same = stream.replay(from_id=ids[7], to="g")
    assert same.group_name == "g"
    assert claimed(same) == ["7", "8", "9"]
    assert group.replay(from_id=ids[9]) == ids[9]
    assert claimed(group) == ["9"]
    assert [str(event.outcome) for event in events if event.operation == "replay"] == ["success"]
    assert stream.groups() == ["g"]


def test_a_replay_never_skips_messages(stream: RedisStreamQueue, ids: list[str]) -> None:
    group = stream.group("g", start="beginning")
    assert claimed(group, 3) == ["0", "1", "2"]
    with pytest.raises(ConfigurationError, match=f"has read up to {ids[2]} only; a replay from {ids[5]} would skip"):
        stream.replay(from_id=ids[5], to="g")
    assert claimed(group, 1) == ["3"]


def test_a_replay_needs_a_place_and_a_group(stream: RedisStreamQueue, ids: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one of from_id and from_time"):
        stream.replay()
    with pytest.raises(ConfigurationError, match="exactly one of from_id and from_time"):
        stream.replay(from_id=ids[0], from_time=at(ids[0]))
    with pytest.raises(ConfigurationError, match="from_id must be an id of a stream"):
        stream.replay(from_id="yesterday")
    with pytest.raises(ConfigurationError, match="has no group 'g' to replay into; create it first"):
        stream.replay(from_id=ids[0], to="g")
    with pytest.raises(ConfigurationError, match="expires_seconds must be a number above 0"):
        stream.replay(from_id=ids[0], expires_seconds=0)
    assert stream.groups() == []


def expire(client: redis.Redis) -> bytes:
    """Expire the one temporary group; return its name."""
    (name,) = [name for name in client.hkeys(KEYS.groups) if name.startswith(TEMPORARY_PREFIX.encode())]
    record = client.hget(KEYS.groups, name)
    assert isinstance(record, bytes)
    client.hset(KEYS.groups, name, record.rpartition(b"\x1f")[0] + b"\x1f1")
    return name


def test_the_group_of_a_dead_process_goes_with_the_next_replay(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    stream.replay(from_id=ids[0])  # whose process dies
    gone = expire(client).decode()
    with stream.replay(from_id=ids[9]) as again:
        assert claimed(again) == ["9"]
        assert gone not in stream.groups()
    assert stream.groups() == []


def test_a_group_with_an_open_lease_does_not_expire(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    group = stream.replay(from_id=ids[0])
    lease = group.claim(3)
    expire(client)
    with stream.replay(from_id=ids[9]):
        assert len(stream.groups()) == 2
    lease.ack()
    with stream.replay(from_id=ids[9]):
        assert len(stream.groups()) == 1


def test_claims_keep_a_temporary_group_alive(stream: RedisStreamQueue, ids: list[str], client: redis.Redis) -> None:
    with stream.replay(from_id=ids[0], expires_seconds=1000) as group:
        assert claimed(group, 1) == ["0"]
        name = expire(client)
        group._kept_at = -1000.0  # type: ignore[attr-defined]  # as if the claim were long ago
        assert claimed(group, 1) == ["1"]
        record = client.hget(KEYS.groups, name)
        assert isinstance(record, bytes)
        seconds, _ = client.time()
        assert int(record.rpartition(b"\x1f")[2]) > (int(seconds) + 900) * 1000


# ---------------------------------------------------------------------- the end of a group


def test_a_deleted_group_leaves_nothing_and_its_leases_are_lost(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    group, other = stream.group("g", start="beginning"), stream.group("other", start="beginning")
    lost = group.claim(2)
    group.claim(1).nack()
    group.claim(1).nack(delay_seconds=100)
    group.claim(1).bury()
    other.claim(1)
    assert stream.delete_group("g") is True
    assert stream.delete_group("g") is False
    assert stream.groups() == ["other"]
    assert [key for key in client.keys("*:group:g:*") if client.pttl(key) < 0] == []
    with pytest.raises(LeaseLostError):
        lost.ack()
    assert other.depth().in_flight == 1
    assert claimed(stream.group("g", start=ids[8])) == ["8", "9"], "it may be made anew"


def test_a_late_deletion_spares_a_group_that_was_made_anew(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    stream.group("g").create("beginning")
    keys, core = KEYS.of_group("g"), Core(client)
    late = delete_group_call(keys, core.do(delete_group_call(keys)).mark)
    assert stream.delete_group("g") is True
    stream.group("g").create("end")
    assert core.do(late).state == 0
    assert stream.groups() == ["g"]
    assert stream.group("g").depth().paused is False


def test_a_late_creation_brings_no_deleted_group_back(
    stream: RedisStreamQueue, ids: list[str], client: redis.Redis
) -> None:
    from sluicegate.core.transitions.groups import create_group_call

    core = Core(client)
    call = create_group_call(KEYS.of_group("g"), b"nonce", "beginning", "0-0")
    assert core.do(call).created is True
    stream.delete_group("g")
    assert core.do(call).created is True
    assert stream.groups() == []


def test_a_group_with_many_leases_is_deleted_in_steps(stream: RedisStreamQueue, client: redis.Redis) -> None:
    stream.publish_many(["x"] * 1200)
    group = stream.group("g", start="beginning")
    leases = [group.claim(1, heartbeat=False) for _ in range(1200)]
    assert stream.delete_group("g") is True
    assert client.keys("*:group:g:lease*") == []
    assert len(leases) == 1200
