"""Tests of how many bytes a claim takes."""

from __future__ import annotations

from typing import Any

from sluicegate.core.bounds import MAX_CLAIM_BYTES


def test_a_claim_stops_once_it_has_enough_bytes(queue: Any) -> None:
    size = MAX_CLAIM_BYTES // 8
    queue.publish_many([bytes(size)] * 10)
    first, second = queue.claim(100), queue.claim(100)

    assert (len(first), len(second)) == (8, 2)
    assert len(queue.claim(100)) == 0
