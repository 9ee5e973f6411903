"""What a driver holds for one run: a retry has the same rows or none, whatever happened to the try before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate._lease_base import LeaseState
from sluicegate.errors import AlreadySettledError, LeaseLostError, RedisUnavailableError
from sluicegate.lease import Lease
from sluicegate.spark.leasing import run_leases as _run_leases
from sluicegate.spark.leasing.run_leases import RunLeases, claim_run
from tests.draining.helpers import Numbers
from tests.support import state
from tests.support.flavours import MakeQueue

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def small_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of ten messages."""
    monkeypatch.setattr(_run_leases, "MAX_CLAIM_LIMIT", 10)


@pytest.fixture
def held(queue: RedisMessageQueue, numbers: Numbers) -> Iterator[RunLeases]:
    """Hold 25 of 40 messages in three leases of the run `r`."""
    numbers(40)
    run_leases = claim_run(queue, "r", 25, 300)
    yield run_leases
    run_leases.stop()


def again(queue: RedisMessageQueue, limit: int = 25) -> RunLeases:
    """Return a retry of the run, whose heartbeats stop at once without a consequence here."""
    run_leases = claim_run(queue, "r", limit, 300)
    run_leases.stop()
    return run_leases


def slots(run_leases: RunLeases) -> list[tuple[str, list[int]]]:
    return [(one.lease_id, list(one.slots)) for one in run_leases.rows]


def expire(client: redis.Redis, queue: RedisMessageQueue, *lease_ids: str) -> None:
    """Let leases expire, and their messages return to the queue."""
    state.expire(client, queue.name, *lease_ids)
    queue.claim(1).release()


def test_a_batch_is_claimed_in_leases_up_to_its_limit(queue: RedisMessageQueue, held: RunLeases) -> None:
    assert slots(held) == [
        ("r/b0", list(range(1, 11))),
        ("r/b1", list(range(1, 11))),
        ("r/b2", list(range(1, 6))),
    ]
    assert (held.state, queue.depth().in_flight, queue.depth().ready) == (LeaseState.OPEN, 25, 15)

    held.ack()

    assert (queue.depth().in_flight, queue.stats().acked, held.counts.acked) == (0, 25, 25)


def test_every_lease_beats_from_its_claim_to_the_end_of_the_batch(held: RunLeases) -> None:
    assert [lease._heartbeat.is_running for lease in held.leases] == [True] * 3
    held.end()
    assert [lease._heartbeat.is_running for lease in held.leases] == [False] * 3


def test_an_empty_queue_and_a_paused_one_say_so(queue: RedisMessageQueue, numbers: Numbers) -> None:
    assert claim_run(queue, "r", 5, 300).state is LeaseState.EMPTY
    numbers(1)
    queue.pause()
    assert claim_run(queue, "r", 5, 300).state is LeaseState.PAUSED


def test_the_driver_keeps_no_payloads_and_frees_deduplication_keys_all_the_same(
    make_queue: MakeQueue, queue: RedisMessageQueue
) -> None:
    keyed = make_queue("keyed", get_deduplication_key="n", deduplication_policy="until_acked")
    keyed.publish_many({"n": str(n), "ballast": "x" * 1000} for n in range(15))
    run_leases = claim_run(keyed, "r", 15, 300)
    assert max(message.size for lease in run_leases.leases for message in lease.messages) < 100

    run_leases.ack_ids([run_leases.leases[0].messages[3].id])
    run_leases.ack()

    assert keyed.publish_many({"n": str(n)} for n in range(15)).accepted == 15


# ---------------------------------------------------------------------- a second try


def test_a_retry_takes_over_the_same_rows_under_the_same_name(queue: RedisMessageQueue, held: RunLeases) -> None:
    retry = again(queue, limit=40)

    assert (slots(retry), retry.digest, retry.opened_us) == (slots(held), held.digest, held.opened_us)
    assert queue.depth().ready == 15, "and claims nothing besides"
    assert retry.leases[0].messages[0].delivery_count == 2
    with pytest.raises(LeaseLostError, match="3 of 3 leases of batch 'r' were lost: 25 acks were too late"):
        held.ack()
    assert queue.stats().acked == 0
    retry.ack()
    assert queue.stats().acked == 25


def test_a_retry_of_what_was_acked_holds_nothing_and_says_so(queue: RedisMessageQueue, held: RunLeases) -> None:
    held.ack()

    retry = again(queue)

    assert (retry.state, retry.rows, retry.counts.acked) == (LeaseState.ACKED, [], 25)
    assert queue.depth().ready == 15


def test_a_retry_finishes_the_ack_that_a_crash_cut_short(
    queue: RedisMessageQueue, held: RunLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_after(1, monkeypatch)
    with pytest.raises(RedisUnavailableError):
        held.ack()
    held.end()
    assert (queue.stats().acked, queue.depth().in_flight) == (10, 15), "an ack of unknown outcome is not taken back"
    monkeypatch.undo()

    retry = again(queue)

    assert (retry.state, retry.rows, retry.counts.acked) == (LeaseState.ACKED, [], 25)
    assert (queue.stats().acked, queue.depth().in_flight, queue.depth().ready) == (25, 0, 15)


def test_a_retry_after_a_partial_ack_has_the_rest_under_the_name_that_the_rest_had(
    queue: RedisMessageQueue, held: RunLeases
) -> None:
    whole = held.digest
    messages = [message for lease in held.leases for message in lease.messages]
    done = [*messages[:10], *messages[11:15], messages[24]]  # all of the first lease, and parts of the others
    assert held.ack_ids(message.id for message in done) == 15
    name = held.digest
    assert held.ack_ids(message.id for message in done[:5]) == 5, "again is harmless"
    assert held.digest == name
    assert held.ack_ids([messages[15].id]) == 1
    assert held.digest != name, "one row less is another name"
    assert slots(held) == [("r/b1", [1, 7, 8, 9, 10]), ("r/b2", [1, 2, 3, 4])]
    assert queue.stats().acked == 16

    retry = again(queue)

    assert (slots(retry), retry.digest) == (slots(held), held.digest)
    assert retry.digest != whole
    retry.ack()
    assert queue.stats().acked == 25


def test_a_run_whose_messages_all_went_back_begins_anew_under_another_name(
    queue: RedisMessageQueue, held: RunLeases
) -> None:
    held.end()
    assert (queue.depth().ready, queue.depth().in_flight) == (40, 0)

    retry = again(queue)

    assert slots(retry) == slots(held)
    assert retry.digest != held.digest
    assert retry.opened_us > held.opened_us
    assert retry.leases[0].messages[0].delivery_count == 1, "a release does not count"


def test_leases_that_ran_out_leave_a_retry_the_others_under_another_name(
    queue: RedisMessageQueue, held: RunLeases, client: redis.Redis
) -> None:
    expire(client, queue, "r/b0")

    retry = again(queue)

    assert slots(retry) == slots(held)[1:]
    assert retry.digest != held.digest
    assert retry.counts.returned == 10


def test_no_name_is_used_again_when_redis_has_forgotten_everything(
    queue: RedisMessageQueue, held: RunLeases, client: redis.Redis, numbers: Numbers
) -> None:
    held.stop()
    client.flushall()
    numbers(40)

    retry = again(queue)

    assert slots(retry) == slots(held), "the queue counts as it did before"
    assert retry.digest != held.digest
    retry.ack()


# ---------------------------------------------------------------------- what cannot be settled


def test_a_lost_lease_is_named_and_the_others_are_acked(
    queue: RedisMessageQueue, held: RunLeases, client: redis.Redis
) -> None:
    expire(client, queue, "r/b1")

    with pytest.raises(LeaseLostError, match=r"1 of 3 leases of batch 'r' were lost: 10 acks.* 'r/b1'") as lost:
        held.ack()

    assert (lost.value.lease_id, len(lost.value.lost)) == ("r/b1", 10)
    assert held.lost
    assert (queue.stats().acked, queue.depth().ready) == (15, 25)


def test_an_id_of_another_batch_is_refused_before_anything_is_acked(queue: RedisMessageQueue, held: RunLeases) -> None:
    mine = held.leases[0].messages[0].id
    with pytest.raises(AlreadySettledError, match="1 of 2 ids are not in batch 'r', such as 'stranger'; nothing was"):
        held.ack_ids([mine, "stranger"])
    assert queue.stats().acked == 0
    held.ack()


def test_a_claim_that_fails_half_way_gives_back_what_it_took(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(40)
    claim, calls = queue.claim, iter([True, True, False])

    def fails_at_last(*args: object, **options: object) -> Lease:
        if not next(calls):
            raise RedisUnavailableError("gone")
        return claim(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "claim", fails_at_last)
    with pytest.raises(RedisUnavailableError):
        claim_run(queue, "r", 40, 300)
    assert (queue.depth().ready, queue.depth().in_flight) == (40, 0)


def test_what_an_error_leaves_can_be_kept_for_a_retry(queue: RedisMessageQueue, held: RunLeases) -> None:
    held.end(keep=True)
    assert (queue.depth().in_flight, [lease._heartbeat.is_running for lease in held.leases]) == (25, [False] * 3)
    assert again(queue).digest == held.digest


def crash_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every ack of a lease fail after so many."""
    ack, done = Lease.ack, iter(range(1000))

    def failing(lease: Lease, *messages: object) -> None:
        if next(done) >= count:
            raise RedisUnavailableError("gone")
        ack(lease, *messages)  # type: ignore[arg-type]

    monkeypatch.setattr(Lease, "ack", failing)


def test_no_drain_has_a_lease_of_the_same_name(queue: RedisMessageQueue) -> None:
    queue.publish_many(["a", "b"])
    held = claim_run(queue, "run/0", 1, 60, retried=True)
    drained = queue.claim(1, lease_id="run/0/0")
    assert [lease.id for lease in held.leases] == ["run/0/b0"]
    assert drained.state is LeaseState.OPEN
    assert drained.takeovers == 0
