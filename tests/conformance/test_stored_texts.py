"""Every text that is stored has a bound: what people read is cut, what names something is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core import bounds
from sluicegate.errors import ConfigurationError, PayloadTooLargeError
from tests.support.state import contents

MakeQueue = Callable[..., RedisMessageQueue]
LONG = "y" * 3_000_000
Named = type("E" * 2_000_000, (Exception,), {})


def test_what_is_told_of_a_burial_is_cut(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue(enable_failed_queue=True)
    queue.publish("x")
    queue.claim().bury(error=Named(LONG), reason=LONG)
    (dead,) = queue.peek(state="dead")
    assert dead.reason == "y" * (bounds.MAX_REASON_LENGTH - 1) + "…"
    assert dead.error_type == "E" * (bounds.MAX_ERROR_TYPE_LENGTH - 1) + "…"
    assert dead.error == "y" * (bounds.MAX_ERROR_LENGTH - 1) + "…"
    (failed,) = queue.peek(state="failed")
    assert len(failed.error_type + failed.error) <= bounds.MAX_ERROR_TYPE_LENGTH + bounds.MAX_ERROR_LENGTH
    assert client.memory_usage(queue.key.dead + ":records") < 10_000


def test_a_reason_that_was_cut_is_found_by_the_whole_of_it(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish_many("abc")
    for reason in (LONG, "a\x1fb", "x"):
        queue.claim().bury(reason=reason)
    assert queue.redrive(reason=LONG).redriven == 1
    assert queue.redrive(reason="a\x1fb").redriven == 1
    assert queue.depth().dead == 1


def test_the_error_of_a_handler_is_cut(make_queue: MakeQueue) -> None:
    queue = make_queue(enable_failed_queue=True)
    queue.publish("x")
    with pytest.raises(Named), queue.process_message():
        raise Named(LONG)
    (failed,) = queue.peek(state="failed")
    assert failed.error == "y" * (bounds.MAX_ERROR_LENGTH - 1) + "…"
    assert len(failed.error_type) == bounds.MAX_ERROR_TYPE_LENGTH


def test_what_is_short_enough_is_kept_as_it_is(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish("x")
    reason, error = "r" * bounds.MAX_REASON_LENGTH, "e" * bounds.MAX_ERROR_LENGTH
    queue.claim().bury(error=error, reason=reason)
    (dead,) = queue.peek(state="dead")
    assert (dead.reason, dead.error) == (reason, error)


def test_a_key_or_headers_beyond_their_bound_are_refused_with_the_position(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue(get_deduplication_key="id")
    payloads = [{"id": "a"}, {"id": "k" * bounds.MAX_KEY_BYTES}, {"id": "k" * (bounds.MAX_KEY_BYTES + 1)}]
    with pytest.raises(PayloadTooLargeError, match=r"deduplication key of 65537 bytes.*use a hash of it") as caught:
        queue.publish_many(payloads)
    error = caught.value
    assert (error.position, error.size, error.limit) == (2, bounds.MAX_KEY_BYTES + 1, bounds.MAX_KEY_BYTES)
    assert queue.publish_many(payloads[:2]).accepted == 2
    with pytest.raises(PayloadTooLargeError, match=r"headers of .*put the bulk into the payload"):
        queue.publish({"id": "b"}, headers={"h": "x" * bounds.MAX_HEADERS_BYTES})
    assert len(contents(client, "orders").pending) == 2


def test_names_beyond_their_bound_are_refused(make_queue: MakeQueue) -> None:
    queue = make_queue("n" * bounds.MAX_NAME_LENGTH)
    queue.publish("x")
    with pytest.raises(ConfigurationError, match="lease_id has 1001 characters"):
        queue.claim(lease_id="l" * (bounds.MAX_ID_LENGTH + 1))
    assert len(queue.claim(lease_id="l" * bounds.MAX_ID_LENGTH)) == 1
    with pytest.raises(ConfigurationError, match="queue name has 1001 characters"):
        make_queue("n" * (bounds.MAX_NAME_LENGTH + 1))
