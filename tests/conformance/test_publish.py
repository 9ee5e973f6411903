"""Publishing reports outcomes by position, refuses duplicates and sends chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError, QueueDrainedError, WrongKeyTypeError
from tests.support import markers, state

MakeQueue = Callable[..., RedisMessageQueue]


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def test_messages_keep_payload_headers_and_time(queue: RedisMessageQueue) -> None:
    before = datetime.now(UTC)
    assert queue.publish({"a": [1, "ä"]}, headers={"trace": "t-1"}) is True
    assert queue.publish(b"\xff\x1f\x00") is True
    with queue.claim(2) as lease:
        one, other = lease.messages
        assert (one.json(), one.headers, one.deduplication_key) == ({"a": [1, "ä"]}, {"trace": "t-1"}, None)
        assert (other.payload, other.headers) == (b"\xff\x1f\x00", {})
        assert (one.sequence, other.sequence, one.delivery_count) == (1, 2, 1)
        assert abs((one.enqueued_at - before).total_seconds()) < 5


def test_the_payload_may_be_called_message(queue: RedisMessageQueue) -> None:
    assert queue.publish(message={"a": 1}, headers={"trace": "t"}) is True
    (message,) = queue.claim().messages
    assert (message.json(), message.headers) == ({"a": 1}, {"trace": "t"})


def test_a_publish_needs_one_payload(queue: RedisMessageQueue, client: redis.Redis) -> None:
    publish: Any = queue.publish
    with pytest.raises(TypeError, match="two names for the same; give one of them"):
        publish("a", message="a")
    with pytest.raises(TypeError, match="needs a payload"):
        publish()
    for nothing in ({"payload": None}, {"message": None}):
        with pytest.raises(TypeError, match="NoneType"):
            publish(**nothing)
    assert client.dbsize() == 0


def test_outcomes_stand_at_their_positions(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    first = queue.publish_many(rows(1, 2))
    assert (first.accepted, first.duplicates, first.duplicate_of) == (2, 0, [None, None])
    second = queue.publish_many(rows(3, 2, 4, 1))
    assert (second.accepted, second.duplicates) == (2, 2)
    assert second.duplicate_of == [None, first.ids[1], None, first.ids[0]]
    assert len(set(first.ids + second.ids)) == 6
    with queue.claim(10) as lease:
        assert [message.id for message in lease.messages] == [*first.ids, second.ids[0], second.ids[2]]
        assert [message.deduplication_key for message in lease.messages] == ["1", "2", "3", "4"]
    assert queue.publish({"id": 1}) is False


def test_duplicates_inside_one_batch_repeat_its_first(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    report = queue.publish_many(rows(7, 8, 7, 7))
    assert (report.accepted, report.duplicates) == (2, 2)
    assert report.duplicate_of == [None, None, report.ids[0], report.ids[0]]
    assert queue.depth().pending == 2


def test_calls_hold_a_thousand_messages(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish({"id": -1})
    client.config_resetstat()
    report = queue.publish_many({"id": number % 2100} for number in range(2500))
    assert (report.accepted, report.duplicates, len(report.ids), len(report.duplicate_of)) == (2100, 400, 2500, 2500)
    assert report.duplicate_of[:2100] == [None] * 2100
    assert report.duplicate_of[2100:] == report.ids[:400]
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    assert queue.depth().published_total == 2101
    with queue.claim(10_000) as lease:
        assert [message.json()["id"] for message in lease.messages] == [-1, *range(2100)]


def test_calls_end_at_four_megabytes(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish("first")
    client.config_resetstat()
    sizes = [1_500_000, 1_500_000, 1_500_000, 9_000_000, 10, 20, 4_200_000, 30]
    report = queue.publish_many(b"x" * size for size in sizes)
    assert (report.accepted, len(report.ids)) == (8, 8)
    assert [id_.rsplit("-", 1)[1] for id_ in report.ids] == ["0", "1", "0", "0", "0", "1", "0", "0"]
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 6
    claimed = []
    while lease := queue.claim(9):
        with lease:
            claimed.append([len(message.payload) for message in lease.messages])
    # A claim takes a message that brings it to eight megabytes, and none after it.
    assert claimed == [[5, 1_500_000, 1_500_000, 1_500_000, 9_000_000], [10, 20, 4_200_000, 30]]


def test_reports_per_call_end_at_four_megabytes_too(queue: RedisMessageQueue) -> None:
    reports = queue.publish_chunks([b"x" * 2_500_000] * 3 + [b"y"], batch_size=3)
    assert [report.accepted for report in reports] == [1, 1, 2]


def test_positions_count_on_over_calls_that_their_bytes_ended(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    payloads = [{"id": number % 4, "x": "x" * 1_500_000} for number in range(6)]
    report = queue.publish_many(payloads)
    assert report.duplicate_of == [None] * 4 + report.ids[:2]


def test_a_report_per_call_reads_its_source_as_needed(queue: RedisMessageQueue) -> None:
    read: list[int] = []

    def source() -> Any:
        for number in range(5):
            read.append(number)
            yield str(number)

    reports = queue.publish_chunks(source(), batch_size=2)
    assert next(reports).accepted == 2
    assert read == [0, 1]
    assert [report.accepted for report in reports] == [2, 1]


def test_reports_ahead_follow_once_the_next_call_was_read(queue: RedisMessageQueue) -> None:
    read: list[int] = []

    def source() -> Any:
        for number in range(5):
            read.append(number)
            yield str(number)

    reports = queue.publish_chunks(source(), batch_size=2, ahead=True)
    assert next(reports).accepted == 2
    assert read == [0, 1, 2, 3]
    assert [report.accepted for report in reports] == [2, 1]
    assert [message.text() for message in queue.peek(10)] == ["0", "1", "2", "3", "4"]


def test_a_call_that_was_sent_ahead_is_reported_before_its_source_fails(queue: RedisMessageQueue) -> None:
    reports = queue.publish_chunks(["a", "b", 7], batch_size=2, ahead=True)
    assert next(reports).accepted == 2
    with pytest.raises(TypeError) as caught:
        next(reports)
    assert caught.value.position == 2  # type: ignore[attr-defined]
    assert queue.depth().pending == 2


def test_nothing_published_is_an_empty_report(queue: RedisMessageQueue) -> None:
    report = queue.publish_many([])
    assert (report.accepted, report.duplicates, report.ids, report.duplicate_of) == (0, 0, [], [])


def test_a_key_refuses_until_its_window_ends(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="id", deduplication_window_seconds=60)
    assert queue.publish({"id": 1}) is True
    with queue.claim() as lease:
        assert lease
    assert queue.publish({"id": 1}) is False, "an ack does not free the key"
    assert 0 < markers.left_ms(client, QueueKeys("orders"), b"1") <= 60_000
    markers.shorten(client, QueueKeys("orders"), b"1", px=0)
    assert queue.publish({"id": 1}) is True


def test_a_marker_holds_the_id_of_its_message(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="{tenant}:{order}")
    report = queue.publish_many([{"tenant": "a:b", "order": 1}])
    assert markers.owner(client, QueueKeys("orders"), b"a%253Ab%3A1") == report.ids[0].encode()


def test_a_queue_without_keys_takes_everything(queue: RedisMessageQueue) -> None:
    assert queue.publish_many(["same"] * 3).accepted == 3


def test_one_bad_message_stops_its_call_whole(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    with pytest.raises(ValueError, match=r"nan at \$\.x"):
        queue.publish_many([{"id": 1}, {"id": 2, "x": float("nan")}])
    with pytest.raises(ConfigurationError, match="'id' is missing") as caught:
        queue.publish_many([{"id": number} for number in range(1000)] + [{}])
    assert "1000 messages before" in caught.value.__notes__[0]
    assert queue.depth().published_total == 1000


@pytest.mark.parametrize("payload", [42, None, 3.5, True, object()])
def test_a_payload_of_another_type_is_refused_before_its_key_is_asked_for(make_queue: MakeQueue, payload: Any) -> None:
    asked = []
    queue = make_queue(get_deduplication_key=lambda found: str(asked.append(found)))
    with pytest.raises(TypeError, match="publish a dict, a list, a str or bytes"):
        queue.publish(payload)
    assert asked == []


def test_headers_are_checked(queue: RedisMessageQueue) -> None:
    with pytest.raises(TypeError, match="header 'a' must map"):
        queue.publish("x", headers={"a": 1})  # type: ignore[dict-item]
    assert queue.depth().published_total == 0


@pytest.mark.parametrize("name", ["{}", "a:b", "a b", "😀", "%7B", "#", "a\nb", "{x}", "*?[", "..", "x" * 300])
def test_any_name_works(make_queue: MakeQueue, client: redis.Redis, name: str) -> None:
    queue, other = make_queue(name, get_deduplication_key="id"), make_queue(name + "'")
    queue.publish({"id": 1})
    assert other.depth().ready == 0
    with queue.claim(lease_id=name) as lease:
        assert [message.json() for message in lease.messages] == [{"id": 1}]
    assert queue.claim(lease_id=name).state.value == "acked"
    assert state.contents(client, name).ids()["pending"] == []


def test_a_closed_queue_publishes_no_more(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish("x")
    lease = queue.claim()
    queue.close()
    assert lease.counts.returned == 1
    with pytest.raises(QueueDrainedError):
        queue.publish("y")
    assert queue.claim().state.value == "empty"
    assert make_queue().depth().returned == 1


def test_a_failing_call_is_counted_with_those_before(queue: RedisMessageQueue) -> None:
    def payloads() -> Iterator[object]:
        yield from (str(number) for number in range(2000))
        yield object()

    with pytest.raises(TypeError) as caught:
        queue.publish_many(payloads())
    assert "2000 messages before these were handled" in caught.value.__notes__[0]
    assert queue.depth().pending == 2000


def test_no_call_is_sent_after_one_that_failed(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    client.set(queue.key.pending.removesuffix("pending") + "bell", "not a list")
    taken = []

    def payloads() -> Iterator[str]:
        for number in range(10_000):
            taken.append(number)
            yield str(number)

    with pytest.raises(WrongKeyTypeError):
        queue.publish_many(payloads())
    client.delete(queue.key.pending.removesuffix("pending") + "bell")
    assert len(taken) == 2000, "one call was under way, and one prepared"
    assert queue.depth().pending == 0


def test_a_connection_lost_between_sending_and_reading_repeats_nothing(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.depth()

    def payloads() -> Iterator[dict[str, int]]:
        for number in range(3500):
            if number % 1000 == 500:  # a call is under way, but for the first time
                client.client_kill_filter(_type="normal", skipme=True)
                client.script_flush()
            yield {"id": number}

    report = queue.publish_many(payloads())
    assert (report.accepted, report.duplicates) == (3500, 0)
    assert queue.depth().pending == queue.depth().published_total == 3500
    assert [message.json()["id"] for message in queue.peek(3500)] == list(range(3500))


class Ended(BaseException):
    """What ends a program, as KeyboardInterrupt does."""


def test_connections_go_back_when_the_input_fails(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.depth()
    for error in (RuntimeError("the input fails"), Ended()):

        def payloads(error: BaseException = error) -> Iterator[str]:
            yield from map(str, range(1000))
            raise error

        with pytest.raises(type(error)):
            queue.publish_many(payloads())
    assert queue.depth().pending == 2000
    assert not queue.session.runner.gateway.client.connection_pool._in_use_connections


def test_a_stranger_in_a_marker_is_a_duplicate_all_the_same(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(get_deduplication_key="id")
    markers.hold(client, QueueKeys(queue.name), b"1", b"\xff\xfe", px=60_000)
    report = queue.publish_many(rows(1, 2))
    assert (report.accepted, report.duplicates) == (1, 1)
