"""A stream is trimmed to its limits, and never takes from a group what it has not finished unless it was asked to."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate import _session
from sluicegate.core.keys import StreamKeys
from sluicegate.core.stream_ids import parse_start
from sluicegate.core.transitions.groups import create_group_operation
from sluicegate.core.transitions.trim import TrimRules, trim_call
from sluicegate.events import QueueEvent
from tests.conformance.driven import Driven
from tests.support.core_calls import Core
from tests.support.flavours import MakeStream

KEYS = StreamKeys("orders")
STREAM = KEYS.stream


def create(client: redis.Redis, group: str, start: str = "beginning", life_seconds: float = 0) -> bool:
    operation = create_group_operation(
        KEYS.of_group(group), _session.new_id(), parse_start(start), life_seconds=life_seconds
    )
    return Driven(Core(client)).run(operation)


def read(client: redis.Redis, group: str, count: int, *, acked: bool = True, consumer: str = "c") -> list[bytes]:
    """Read as a consumer of another library does; return the ids."""
    ((_, found),) = client.xreadgroup(group, consumer, {STREAM: ">"}, count=count)
    ids = [name for name, _ in found]
    if acked:
        client.xack(STREAM, group, *ids)
    return ids


def first(client: redis.Redis) -> bytes:
    name: bytes = client.xrange(STREAM, count=1)[0][0]
    return name


def fill(make_stream: MakeStream, count: int) -> list[str]:
    return make_stream().publish_many(str(number) for number in range(count)).ids


def test_publishes_keep_the_length_near_its_limit(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(max_length=1000)
    lengths = []
    for _ in range(10):
        stream.publish_many(["x" * 200] * 500)
        lengths.append(client.xlen(STREAM))
    assert all(1000 <= length < 1700 for length in lengths[2:])
    assert stream.info().trimmed == 5000 - lengths[-1]
    report = stream.trim()
    assert (report.length, report.unfinished, report.held_by) == (1000, 0, ())
    assert client.xlen(STREAM) == 1000


def test_single_publishes_trim_once_per_hundred(make_stream: MakeStream, client: redis.Redis) -> None:
    events: list[QueueEvent] = []
    stream = make_stream(max_length=10, on_event=events.append)
    for number in range(400):
        stream.publish(str(number))
    trims = [event.count for event in events if event.operation == "trim"]
    assert 2 <= len(trims) <= 8
    assert sum(trims) == 400 - client.xlen(STREAM) >= 200


def test_a_trim_by_length_is_exact(make_stream: MakeStream, client: redis.Redis) -> None:
    ids = fill(make_stream, 257)
    report = make_stream(max_length=100).trim()
    assert (report.trimmed, report.length) == (157, 100)
    assert first(client).decode() == ids[157]
    assert make_stream(max_length=100).trim().trimmed == 0
    assert make_stream(max_length=3).trim().trimmed == 97


def test_a_trim_by_age_is_exact(make_stream: MakeStream, client: redis.Redis) -> None:
    seconds, micros = client.time()
    now = int(seconds) * 1000 + int(micros) // 1000
    for age in (90_000, 61_000, 59_000, 10_000):
        client.xadd(STREAM, {"data": "x"}, id=f"{now - age}-0")
    report = make_stream(max_age_seconds=60).trim()
    assert (report.trimmed, report.length) == (2, 2)
    assert first(client).decode() == f"{now - 59_000}-0"
    stream = make_stream(max_age_seconds=5)
    stream.publish("new")  # a publish trims by age as well: whole nodes, and here all of it is one
    assert client.xlen(STREAM) == 3
    assert stream.trim().trimmed == 2


def test_what_a_group_has_not_been_delivered_stays(make_stream: MakeStream, client: redis.Redis) -> None:
    ids = fill(make_stream, 1000)
    create(client, "fast")
    create(client, "slow")
    read(client, "fast", 1000)
    read(client, "slow", 250)
    stream = make_stream(max_length=10)
    report = stream.trim()
    assert (report.trimmed, report.unfinished, report.length, report.held_by) == (250, 0, 750, ("slow",))
    assert first(client).decode() == ids[250]
    stream.publish_many(["x"] * 500)
    assert client.xlen(STREAM) == 1250
    read(client, "slow", 2000)
    assert stream.trim().held_by == ("fast",)
    read(client, "fast", 2000)
    assert stream.trim().length == 10


def test_what_another_library_holds_stays_with_all_behind_it(make_stream: MakeStream, client: redis.Redis) -> None:
    ids = fill(make_stream, 400)
    create(client, "g")
    held = read(client, "g", 400, acked=False)
    client.xack(STREAM, "g", *held[:120], *held[121:])
    stream = make_stream(max_length=1)
    report = stream.trim()
    assert (report.trimmed, report.length, report.held_by) == (120, 280, ("g",))
    assert first(client).decode() == ids[120]
    client.xack(STREAM, "g", held[120])
    assert stream.trim().length == 1


def test_trimming_costs_a_slow_group_nothing_and_does_not_read_the_lag(
    make_stream: MakeStream, client: redis.Redis
) -> None:
    """On Redis 6.2 a group has no lag, and after deletions newer servers do not know it either."""
    ids = fill(make_stream, 300)
    create(client, "g")
    read(client, "g", 100)
    client.xdel(STREAM, ids[150])  # from here on, XINFO answers no lag
    assert make_stream().info().groups[0].lag is None
    report = make_stream(max_length=50).trim()
    assert (report.trimmed, report.length) == (100, 199)
    assert len(read(client, "g", 1000)) == 199


def test_unfinished_messages_go_only_if_asked_and_are_counted(make_stream: MakeStream, client: redis.Redis) -> None:
    events: list[QueueEvent] = []
    fill(make_stream, 1000)
    create(client, "slow")
    read(client, "slow", 300)
    stream = make_stream(max_length=400, trim_unfinished=True, on_event=events.append)
    report = stream.trim()
    assert (report.trimmed, report.unfinished, report.length, report.held_by) == (600, 300, 400, ())
    assert stream.info().trimmed_unfinished == 300
    assert {event.operation for event in events} == {"trim"}
    assert sum(event.count for event in events if event.outcome == "success") == 600
    assert [event.count for event in events if event.outcome == "dropped"] == [300]
    assert len(read(client, "slow", 1000)) == 400


def test_a_publish_reports_what_it_dropped_unfinished(make_stream: MakeStream, client: redis.Redis) -> None:
    create(client, "slow")
    stream = make_stream(max_length=100, trim_unfinished=True)
    report = stream.publish_many(["x" * 300] * 3000)
    assert report.accepted == 3000
    assert report.dropped == 3000 - client.xlen(STREAM) == stream.info().trimmed_unfinished
    assert report.dropped >= 2700
    assert repr(report) == f"PublishReport(accepted=3000, duplicates=0, dropped={report.dropped})"


def test_only_unfinished_messages_are_counted_as_such(make_stream: MakeStream, client: redis.Redis) -> None:
    """The last finished and the first unfinished entries share a node, which goes as a whole."""
    fill(make_stream, 300)
    create(client, "slow")
    read(client, "slow", 150)
    done = Core(client).do(trim_call(KEYS, TrimRules(max_length=50, trim_unfinished=True)))
    assert (done.trimmed, done.unfinished, done.length) == (200, 50, 100)


def test_without_a_group_only_the_limits_count(make_stream: MakeStream, client: redis.Redis) -> None:
    fill(make_stream, 300)
    assert make_stream(max_length=10).trim().length == 10


def test_a_temporary_group_holds_nothing_back(make_stream: MakeStream, client: redis.Redis) -> None:
    fill(make_stream, 300)
    create(client, "replay", life_seconds=60)
    assert make_stream(max_length=10).trim().length == 10
    (group,) = make_stream().info().groups
    assert group.is_temporary is True
    assert group.expires_in_seconds is not None
    assert 50 < group.expires_in_seconds <= 60


def test_an_expired_temporary_group_is_deleted_with_the_next_trim(make_stream: MakeStream, client: redis.Redis) -> None:
    fill(make_stream, 300)
    create(client, "replay", life_seconds=60)
    create(client, "lasting")
    record = client.hget(KEYS.groups, "replay")
    assert isinstance(record, bytes)
    client.hset(KEYS.groups, "replay", record.rpartition(b"\x1f")[0] + b"\x1f1")
    client.hset(KEYS.of_group("replay").counters, "claimed", 1)
    stream = make_stream(max_length=10)
    stream.trim()
    assert stream.groups() == ["lasting"]
    assert client.hkeys(KEYS.groups) == [b"lasting"]
    assert client.exists(KEYS.of_group("replay").counters) == 0


def test_a_call_is_bounded(make_stream: MakeStream, client: redis.Redis) -> None:
    fill(make_stream, 900)
    core = Core(client)
    done = core.do(trim_call(KEYS, TrimRules(max_length=1), most=300))
    assert done.trimmed <= 300
    assert done.more is True or done.trimmed >= 200
    total = make_stream(max_length=1).trim()
    assert total.length == 1
    assert total.trimmed == 899 - done.trimmed


def test_a_full_redis_can_be_trimmed(make_stream: MakeStream, client: redis.Redis) -> None:
    fill(make_stream, 300)
    create(client, "g")
    read(client, "g", 300)
    client.config_set("maxmemory", "1")
    assert make_stream(max_length=10).trim().length == 10


def test_a_failed_trim_does_not_fail_the_publish(make_stream: MakeStream, bare_client: redis.Redis) -> None:
    stream = make_stream(max_length=10)
    bare_client.set(KEYS.groups, "not a hash")
    assert stream.publish_many(["x"] * 300).accepted == 300
    bare_client.flushall()


@pytest.mark.parametrize("name", ["max_length", "max_age_seconds", "trim_unfinished"])
def test_a_spec_carries_the_limits(make_stream: Any, name: str) -> None:
    from sluicegate import QueueSpec
    from sluicegate.streams import RedisStreamQueue

    given: dict[str, Any] = {"max_length": 7, "max_age_seconds": 8.5, "trim_unfinished": True}
    made = RedisStreamQueue("orders", url="redis://localhost:1/0", **given)
    spec = QueueSpec.from_json(made.spec().to_json())
    assert (spec.kind, spec.options) == ("stream", given)
    assert RedisStreamQueue.from_spec(spec).spec() == spec
    assert spec.options[name] == given[name]
