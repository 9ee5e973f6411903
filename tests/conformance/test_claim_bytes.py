"""Tests of how many bytes a claim takes."""

from __future__ import annotations

from typing import Any

from sluicegate.core.bounds import MAX_CLAIM_BYTES, MAX_RECORDED_CLAIM_BYTES
from tests.support.flavours import MakeQueue


def test_a_claim_stops_once_it_has_enough_bytes(queue: Any) -> None:
    size = MAX_CLAIM_BYTES // 8
    queue.publish_many([bytes(size)] * 10)
    first, second = queue.claim(100), queue.claim(100)

    assert (len(first), len(second)) == (8, 2)
    assert len(queue.claim(100)) == 0


def test_a_claim_takes_less_where_its_acks_are_recorded(make_queue: MakeQueue) -> None:
    """All acks of a lease are one call, which writes the messages into the history."""
    queue = make_queue(enable_completed_queue=True)
    queue.publish_many([bytes(MAX_RECORDED_CLAIM_BYTES // 8)] * 10)
    first, second = queue.claim(100), queue.claim(100)

    assert (len(first), len(second)) == (8, 2)
    first.ack()
    second.ack()
    assert queue.stats().completed == 10
