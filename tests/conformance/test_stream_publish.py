"""A stream refuses duplicates, answers with stream ids, and keeps its entries readable by any client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from sluicegate import ConfigurationError, PublishUnknownError, QueueDrainedError, WrongKeyTypeError
from sluicegate.core.keys import StreamKeys
from sluicegate.events import QueueEvent
from tests.support import markers
from tests.support.flavours import MakeStream

KEYS = StreamKeys("orders")


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def entries(client: redis.Redis) -> list[tuple[str, dict[bytes, bytes]]]:
    return [(name.decode(), fields) for name, fields in client.xrange(KEYS.stream)]


def test_an_entry_has_fields_that_any_client_reads(make_stream: MakeStream, client: redis.Redis) -> None:
    plain, keyed = make_stream(), make_stream(get_deduplication_key="id")
    held = make_stream(get_deduplication_key="id", deduplication_policy="until_acked")
    assert plain.publish({"a": [1, "ä"]}) is True
    assert plain.publish(b"\xff\x1f\x00", headers={"trace": "t"}) is True
    assert keyed.publish({"id": 1}) is True
    assert keyed.publish({"id": 2}, headers={"trace": "t"}) is True
    assert held.publish({"id": 3}) is True
    assert held.publish({"id": 4}, headers={"trace": "t"}) is True
    headers = b'{"trace":"t"}'
    assert [fields for _, fields in entries(client)] == [
        {b"data": '{"a":[1,"ä"]}'.encode()},
        {b"data": b"\xff\x1f\x00", b"headers": headers},
        {b"data": b'{"id":1}', b"key": b"1"},
        {b"data": b'{"id":2}', b"headers": headers, b"key": b"2"},
        {b"data": b'{"id":3}', b"key": b"3", b"policy": b"until_acked"},
        {b"data": b'{"id":4}', b"headers": headers, b"key": b"4", b"policy": b"until_acked"},
    ]


def test_the_report_has_stream_ids_at_their_positions(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id")
    first = stream.publish_many(rows(1, 2))
    assert (first.accepted, first.duplicates, first.duplicate_of) == (2, 0, [None, None])
    second = stream.publish_many(rows(3, 2, 4, 1, 3))
    assert (second.accepted, second.duplicates) == (2, 3)
    assert second.duplicate_of == [None, first.ids[1], None, first.ids[0], second.ids[0]]
    assert second.ids == [second.ids[0], first.ids[1], second.ids[2], first.ids[0], second.ids[0]]
    assert [name for name, _ in entries(client)] == [*first.ids, second.ids[0], second.ids[2]]
    assert [json.loads(fields[b"data"])["id"] for _, fields in entries(client)] == [1, 2, 3, 4]
    assert stream.publish({"id": 1}) is False
    info = stream.info()
    assert (info.length, info.published, info.duplicates) == (4, 4, 4)
    assert (info.first_id, info.last_id, info.last_generated_id) == (first.ids[0], second.ids[2], second.ids[2])


def test_many_messages_keep_their_order_and_ids(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream()
    report = stream.publish_many({"n": number} for number in range(2500))
    found = entries(client)
    assert report.ids == [name for name, _ in found]
    assert [json.loads(fields[b"data"])["n"] for _, fields in found] == list(range(2500))
    assert stream.depth() == 2500


def test_chunks_are_reported_one_by_one(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream()
    reports = list(stream.publish_chunks(rows(*range(5)), batch_size=2))
    assert [report.accepted for report in reports] == [2, 2, 1]
    assert [name for report in reports for name in report.ids] == [name for name, _ in entries(client)]


def test_ids_continue_behind_one_of_another_clock(make_stream: MakeStream, client: redis.Redis) -> None:
    future = 4_000_000_000_000
    client.xadd(KEYS.stream, {"data": "x"}, id=f"{future}-7")
    assert make_stream().publish_many(["a", "b"]).ids == [f"{future}-8", f"{future}-9"]
    greatest = 2**64 - 1
    client.xadd(KEYS.stream, {"data": "x"}, id=f"{future}-{greatest - 3}")
    assert make_stream().publish_many("cde").ids == [f"{future}-{greatest - left}" for left in (2, 1, 0)]
    report = make_stream().publish_many(["d", "e"])
    assert report.ids == [f"{future + 1}-0", f"{future + 1}-1"]
    assert [name for name, _ in entries(client)][-2:] == report.ids


def test_a_window_ends(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id", deduplication_window_seconds=1000)
    assert stream.publish({"id": 1}) is True
    assert 990_000 < markers.left_ms(client, KEYS, b"1") <= 1_000_000
    markers.shorten(client, KEYS, b"1", px=0)
    assert stream.publish({"id": 1}) is True


def test_until_acked_holds_a_key_for_a_week_at_least(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id", deduplication_policy="until_acked")
    assert stream.publish({"id": 1}) is True
    assert stream.publish({"id": 1}) is False
    assert 6.9 * 86_400 < markers.left_ms(client, KEYS, b"1") / 1000 <= 7 * 86_400


def test_a_key_is_forgotten(make_stream: MakeStream) -> None:
    events: list[QueueEvent] = []
    stream = make_stream(get_deduplication_key="id", on_event=events.append)
    report = stream.publish_many(rows(1))
    assert stream.forget("1") is True
    assert stream.forget("1") is False
    assert stream.publish({"id": 1}) is True
    assert [(event.operation, event.message_id) for event in events][:2] == [
        ("publish", report.ids[0]),
        ("forget", report.ids[0]),
    ]


def test_a_queue_and_a_stream_of_one_name_share_no_key(make_stream: MakeStream, make_queue: Any) -> None:
    queue, stream = make_queue(get_deduplication_key="id"), make_stream(get_deduplication_key="id")
    assert (queue.publish({"id": 1}), stream.publish({"id": 1})) == (True, True)
    assert (queue.publish({"id": 1}), stream.publish({"id": 1})) == (False, False)
    assert (queue.depth().pending, stream.depth()) == (1, 1)


def test_events_name_the_message_by_its_stream_id(make_stream: MakeStream) -> None:
    events: list[QueueEvent] = []
    stream = make_stream(get_deduplication_key="id", on_event=events.append)
    stream.publish({"id": 1})
    stream.publish({"id": 1})
    stream.publish_many(rows(1, 2, 3))
    name = stream.info().first_id
    assert [(str(event.outcome), event.count, event.message_id) for event in events] == [
        ("success", 1, name),
        ("duplicate", 1, name),
        ("success", 2, None),
        ("duplicate", 1, None),
    ]


def test_cancelled_messages_leave_the_stream_and_free_their_keys(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id")
    report = stream.publish_many(rows(1, 2, 3))
    stream.forget("2")
    stream.publish({"id": 2})
    gone = stream.cancel([report.ids[1], "1-1", report.ids[0], report.ids[0]])
    assert gone == [report.ids[1], report.ids[0]]
    assert stream.publish({"id": 1}) is True
    assert stream.publish({"id": 2}) is False, "the key belongs to another message by now"
    assert client.xlen(KEYS.stream) == 3
    assert stream.cancel([]) == []
    with pytest.raises(ConfigurationError, match="id must be an id of a stream"):
        stream.cancel(["nonsense"])
    with pytest.raises(TypeError, match="several message ids"):
        stream.cancel(report.ids[2])


def test_a_peek_shows_the_history_from_any_place_on(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id")
    ids = stream.publish_many(rows(1, 2, 3), headers={"trace": "t"}).ids
    client.xadd(KEYS.stream, {"event": "x"}, id="9999999999999-0")
    (first, second) = stream.peek(2)
    assert [first.id, second.id] == ids[:2]
    assert (first.json(), first.headers, first.deduplication_key) == ({"id": 1}, {"trace": "t"}, "1")
    assert [message.json() for message in stream.peek(from_id=ids[1])] == [{"id": 2}, {"id": 3}, {"event": "x"}]
    assert [message.id for message in stream.peek(from_time=datetime(2286, 1, 1, tzinfo=UTC))] == ["9999999999999-0"]
    assert make_stream("other").peek() == []
    with pytest.raises(ConfigurationError, match="from_id must be an id"):
        stream.peek(from_id="x")


def test_a_key_of_another_type_is_refused_and_stays(make_stream: MakeStream, bare_client: redis.Redis) -> None:
    bare_client.set(KEYS.stream, "mine")
    with pytest.raises(WrongKeyTypeError):
        make_stream().publish("a")
    assert bare_client.get(KEYS.stream) == b"mine"
    bare_client.flushall()


def test_what_a_stream_cannot_do_is_refused_with_advice(make_stream: MakeStream) -> None:
    with pytest.raises(ConfigurationError, match="stream name is blank"):
        make_stream(" ")
    with pytest.raises(ConfigurationError, match="its name is max_length"):
        make_stream(max_len=5)
    with pytest.raises(ConfigurationError, match=r"give it to stream\.group"):
        make_stream(visibility_timeout_seconds=5)
    with pytest.raises(TypeError, match="did you mean max_age_seconds"):
        make_stream(max_age_second=5)
    with pytest.raises(ConfigurationError, match="max_length must be None"):
        make_stream(max_length=0)
    with pytest.raises(ConfigurationError, match="max_age_seconds must be a number above 0"):
        make_stream(max_age_seconds=0)
    with pytest.raises(ConfigurationError, match="trim_unfinished=True has no effect without"):
        make_stream(trim_unfinished=True)
    with pytest.raises(ConfigurationError, match="neither max_length nor max_age_seconds"):
        make_stream().trim()
    stream = make_stream()
    with pytest.raises(TypeError, match="unexpected keyword argument 'delay_seconds'"):
        stream.publish("a", delay_seconds=5)


def test_a_closed_stream_publishes_no_more(make_stream: MakeStream) -> None:
    stream = make_stream()
    stream.publish("a")
    assert stream.shutdown(0) is True
    with pytest.raises(QueueDrainedError):
        stream.publish("b")


def test_an_outcome_that_is_unknown_has_no_ids_to_look_for(make_stream: MakeStream, client: redis.Redis) -> None:
    from sluicegate.core.publishing import Publishing
    from sluicegate.core.transitions.publish_to_stream import publish_to_stream_call

    (batch,) = Publishing(KEYS, None, 3600, 120).batches(["a"], new_id=lambda: b"B" * 16)
    stream = make_stream()
    unknown = PublishUnknownError(
        "?", ids=[], calls=(publish_to_stream_call(KEYS, batch, {}, age_seconds=0),), born=0.0, batch=batch
    )
    with pytest.raises(PublishUnknownError, match="look for them in the stream") as caught:
        stream.publish_again(unknown)
    assert list(caught.value.ids) == []
    assert client.xlen(KEYS.stream) == 0
