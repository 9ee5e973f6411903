"""A queue of redis-message-queue moves with all that it stores, in its order and once."""

from __future__ import annotations

import json

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.errors import ConfigurationError, RedisMemoryError
from sluicegate.migrating import MessageQueueSource, Migration
from tests.migrating.old_queues import OldMessageQueue
from tests.support import markers, state

SOURCE = MessageQueueSource("orders")


def move(gateway: RedisGateway, source: MessageQueueSource = SOURCE, **options: object) -> Migration:
    return Migration(source, "orders", source_gateway=gateway, **options)  # type: ignore[arg-type]


def left_of(client: redis.Redis) -> list[bytes]:
    """List keys of the old library that a move should have emptied."""
    return [key for key in client.keys("orders*") if b"claim_result" not in key and b"deduplication" not in key]


def test_everything_moves_in_its_order(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("0", "1", '{"id": 2}', "3", "4")
    old.claim(deadline_in_ms=-1, count=2)
    old.claim(deadline_in_ms=-1)
    old.end("dlq", "d0", "d1")
    old.end("dead_letter", "d2")
    old.end("failed", "f0")
    old.end("completed", "c0", "c1")

    report = move(gateway).run()

    assert {part.part: part.moved for part in report.parts} == {
        "in flight": 2,
        "pending": 3,
        "dead": 3,
        "failed": 1,
        "completed": 2,
    }
    assert (report.moved, report.left, [part.raw for part in report.parts]) == (11, 0, [0] * 5)
    assert left_of(client) == []
    queue = RedisMessageQueue("orders", client=client)
    assert queue.depth().ready == 5
    got = []
    while lease := queue.claim(10):
        got += [(message.text(), message.delivery_count) for message in lease]
        lease.ack()
    assert got == [("0", 3), ("1", 2), ('{"id": 2}', 1), ("3", 1), ("4", 1)]
    dead = [(letter.message.text(), letter.reason) for letter in queue.peek(state="dead") if letter.message]
    assert sorted(dead) == [
        ("d0", "max_delivery_count"),
        ("d1", "max_delivery_count"),
        ("d2", "max_delivery_count"),
        ("f0", "handler_error"),
    ]
    assert queue.redrive(reason="handler_error").redriven == 1
    assert [done.message.text() for done in queue.peek(state="completed")] == ["c1", "c0"]


def test_values_of_other_formats_move_as_they_are(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("raw \x1f text", "\x1eRMQ1:not JSON", '\x1eRMQ1:{"id":"a"}', raw=True)
    client.lpush("orders::pending", b"\xff\x00", b'\x1eRMQ1:{"id":"a","payload_hex":"ff1f00"}')

    (part,) = move(gateway).run().parts

    assert (part.moved, part.raw, part.left) == (5, 4, 0)
    payloads = [message.payload for message in RedisMessageQueue("orders", client=client).peek()]
    assert payloads == [b"raw \x1f text", b"\x1eRMQ1:not JSON", b'\x1eRMQ1:{"id":"a"}', b"\xff\x00", b"\xff\x1f\x00"]


def test_deduplication_keys_stay_held_for_what_is_left_of_their_time(
    client: redis.Redis, gateway: RedisGateway
) -> None:
    old = OldMessageQueue(client)
    old.hold("a:{7}", seconds=1000)
    old.hold("other", seconds=500)
    client.set("orders::deduplication::other:publish_operation_result:x", "", ex=99)
    client.set("orders2::deduplication::foreign", "", ex=99)

    (part,) = move(gateway).run().parts

    assert (part.part, part.moved) == ("deduplication keys", 2)
    queue = RedisMessageQueue("orders", client=client, get_deduplication_key="id")
    assert [queue.publish({"id": name}) for name in ("a:{7}", "other", "foreign")] == [False, False, True]
    assert 990_000 < markers.left_ms(client, queue.session.keys, b"a%3A%7B7%7D") <= 1_000_000
    assert client.exists("orders::deduplication::other") == 1


def test_a_dry_run_shows_what_would_move_and_changes_nothing(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("0", "1", "2")
    old.claim(deadline_in_ms=-1)
    old.end("dlq", "d")
    old.hold("k")
    RedisMessageQueue("orders", client=client).publish("there before")
    before = state.dumps(client)

    plan = move(gateway).plan()

    assert [(part.part, part.count, part.becomes) for part in plan.parts] == [
        ("in flight", 1, "returned"),
        ("pending", 2, "pending"),
        ("dead", 1, "dead"),
        ("deduplication keys", 1, "held as long as there"),
    ]
    assert (plan.total, plan.problems) == (4, [])
    assert plan.notes == ("queue 'orders' holds 1 waiting messages already; what moves follows them",)
    assert state.dumps(client) == before


def test_nothing_moves_while_a_consumer_holds_a_message(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("held", "expired", "unknown", "waits")
    old.claim()
    old.claim(deadline_in_ms=-1)
    old.claim(deadline_in_ms=None)
    before = state.dumps(client)
    with pytest.raises(ConfigurationError, match="may be working on 2 of 3 messages; stop them first"):
        move(gateway).run()
    assert state.dumps(client) == before


def test_messages_of_live_consumers_can_be_left(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("held", "expired", "waits")
    held = old.claim()
    old.claim(deadline_in_ms=-1)
    plan = move(gateway, in_flight="leave").plan()
    assert [(part.part, part.count, part.becomes) for part in plan.parts] == [
        ("in flight", 1, "left"),
        ("in flight", 1, "returned"),
        ("pending", 1, "pending"),
    ]

    report = move(gateway, in_flight="leave").run()

    assert report.moved == 2
    assert client.lrange("orders::processing", 0, -1) == [held]
    assert client.hkeys("orders::processing:lease_tokens") == [held]
    queue = RedisMessageQueue("orders", client=client)
    assert [message.text() for message in (*queue.peek(state="returned"), *queue.peek())] == ["expired", "waits"]


def test_messages_of_live_consumers_can_be_taken(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("held", "waits")
    old.claim(count=4)
    assert move(gateway, in_flight="return").run().moved == 2
    assert left_of(client) == []
    (first,) = RedisMessageQueue("orders", client=client).peek(state="returned")
    assert (first.text(), first.delivery_count) == ("held", 4)


def test_other_separators_and_names_of_dead_letters(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client, "a*b", ":")
    old.publish("x")
    old.hold("k")
    client.lpush("graveyard", "d")
    report = move(gateway, MessageQueueSource("a*b", separator=":", dead_letter_key="graveyard")).run()
    assert {part.part: part.moved for part in report.parts} == {"deduplication keys": 1, "pending": 1, "dead": 1}


def test_only_chosen_parts_move(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldMessageQueue(client)
    old.publish("x")
    old.end("completed", "c")
    assert [part.part for part in move(gateway, parts=("pending",)).run().parts] == ["pending"]
    assert client.llen("orders::completed") == 1
    with pytest.raises(ConfigurationError, match="there is no part 'all'"):
        move(gateway, parts=("all",))


def test_a_source_of_another_type_or_without_anything(client: redis.Redis, gateway: RedisGateway) -> None:
    plan = move(gateway).plan()
    assert (plan.parts, plan.notes) == ((), ("redis-message-queue 'orders' holds nothing; is the name right?",))
    assert move(gateway).run().parts == ()
    client.set("orders::pending", "text")
    with pytest.raises(ConfigurationError, match="'orders::pending' holds a string, where a list was expected"):
        move(gateway).run()
    with pytest.raises(ConfigurationError, match="moves into a queue, not into a stream"):
        move(gateway, into="stream")


def test_a_message_too_large_for_the_target_is_left_beside_its_list(
    client: redis.Redis, gateway: RedisGateway, own_server: object
) -> None:
    """The new server accepts less than the old one."""
    with own_server.client() as other:  # type: ignore[attr-defined]
        other.config_set("proto-max-bulk-len", 1_048_576)
        OldMessageQueue(client).publish("a", "x" * 2_000_000, "b")
        report = move(gateway, target_gateway=RedisGateway(redis_client=other)).run()
        (part,) = report.parts
        assert (part.moved, part.left, part.reasons) == (2, 1, {"larger than the new server accepts": 1})
        assert client.llen("{orders::pending}:sluicegate:left") == 1
        assert [message.text() for message in RedisMessageQueue("orders", client=other).peek()] == ["a", "b"]


def test_a_full_target_keeps_the_rest_at_the_source_until_the_next_run(
    client: redis.Redis, gateway: RedisGateway, small_pages: None
) -> None:
    OldMessageQueue(client).publish(*map(str, range(8)))
    client.config_set("maxmemory", "1")
    with pytest.raises(RedisMemoryError):
        move(gateway).run()
    client.config_set("maxmemory", "0")
    assert client.llen("orders::pending") == 5
    plan = move(gateway).plan()
    assert (plan.total, plan.parts[0].note) == (8, "3 of them taken by a run that was interrupted")
    assert move(gateway).run().moved == 8
    assert [message.text() for message in RedisMessageQueue("orders", client=client).peek()] == list(map(str, range(8)))


def test_progress_counts_messages(client: redis.Redis, gateway: RedisGateway, small_pages: None) -> None:
    OldMessageQueue(client).publish(*(json.dumps({"id": number}) for number in range(7)))
    seen: list[tuple[str, int, int]] = []
    move(gateway).run(progress=lambda step: seen.append((step.part, step.done, step.total)))
    assert seen == [("pending", 3, 7), ("pending", 6, 7), ("pending", 7, 7)]
