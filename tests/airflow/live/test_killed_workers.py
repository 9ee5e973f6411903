"""A worker is killed with its task: Airflow notices the missing heartbeat, and a retry takes the work over."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.airflow.live.held import Held, check_settled
from tests.support import handlers

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def test_a_publish_killed_in_a_batch_puts_each_message_with_a_key_into_the_queue_once(held: Held) -> None:
    held.start("publishes", "publish", count=500)
    assert held.queue.depth().ready == 200

    held.kill_and_retry()

    report = held.xcom("publish")
    assert (report["published"], report["duplicates"]) == (300, 200)
    with held.queue.claim(1000) as lease:
        assert [message.json()["n"] for message in lease] == list(range(500))


def test_a_drain_killed_in_a_batch_repeats_that_batch_only(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 50))
    held.start("drains", "drain")
    assert held.queue.stats().acked == 20

    held.kill_and_retry()

    report = held.xcom("drain")
    assert (report["acked"], report["taken_over"]) == (50, 1)
    assert Counter(handlers.numbers(held.folder)) == Counter([*range(50), *range(20, 30)])
    check_settled(held.queue, 50)


def test_a_consume_killed_before_its_batch_is_stored_hands_the_same_batch_on_once(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 20))
    held.start("consumes", "batch", holds="batch")
    held.queue.publish_many(handlers.messages(held.folder, 20, start=20))
    assert held.queue.depth().in_flight == 20

    held.kill_and_retry()

    assert handlers.recorded(held.folder) == [list(range(20))]
    assert held.queue.stats().acked == 20
    assert held.queue.depth().ready == 20


def test_a_claim_killed_before_its_handle_is_stored_claims_the_same_batch(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 20))
    held.start("leases", "claim", holds="claim")
    held.queue.publish_many(handlers.messages(held.folder, 20, start=20))

    held.kill_and_retry()

    assert handlers.recorded(held.folder) == [list(range(20))]
    assert held.xcom("settle") == {"acked": 20, "returned": 0, "buried": 0}
    assert held.queue.depth().ready == 20


def test_a_task_killed_with_a_claimed_lease_repeats_its_work_and_the_lease_is_acked_once(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 20))
    held.start("leases", "work", holds="work")

    held.kill_and_retry()

    assert handlers.recorded(held.folder) == [list(range(20))] * 2
    assert held.xcom("settle") == {"acked": 20, "returned": 0, "buried": 0}
    check_settled(held.queue, 20)
