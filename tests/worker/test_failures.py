"""What becomes of a message whose handler fails, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import tenacity

from sluicegate import ConfigurationError, OptionTypeError, QueueEvent
from sluicegate.worker import Delivery, Reject, Retry
from tests.support.flavours import MakeQueue
from tests.worker.conftest import MakeWorker

AT_ONCE = tenacity.wait_none()


def fail(_: Any) -> None:
    raise LookupError("no such order")


def test_a_handler_that_returns_false_has_failed(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(max_delivery_count=2, retry_backoff=AT_ONCE, on_event=events.append)
    worker = make_worker(queue)
    worker.register("created", lambda _: False)
    queue.publish({"type": "created"})

    first, second, third = (worker.run_once() for _ in range(3))
    assert [(each.failed, each.buried) for each in (first, second, third)] == [(1, 0), (1, 1), (0, 0)]
    (dead,) = queue.peek(1, state="dead")
    assert (dead.reason, dead.error_type) == ("max_delivery_count", "HandlerFailedError")
    assert dead.error == "the handler returned False"
    assert [str(event.outcome) for event in events if event.operation == "handle"] == ["failure", "failure"]


@pytest.mark.parametrize("result", [None, True, 0, "", {}, "False"])
def test_any_other_result_is_an_ack(queue: Any, make_worker: MakeWorker, result: Any) -> None:
    worker = make_worker(queue)
    worker.register("created", lambda _: result)
    queue.publish({"type": "created"})

    assert worker.run_once().handled == 1
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)


def test_an_exception_is_kept_and_retried_by_the_options_of_the_queue(
    make_queue: MakeQueue, make_worker: MakeWorker
) -> None:
    queue = make_queue(retry_backoff=tenacity.wait_fixed(60), enable_failed_queue=True)
    worker = make_worker(queue)
    worker.register("created", fail)
    queue.publish({"type": "created"})

    assert worker.run_once().failed == 1
    depth = queue.depth()
    assert (depth.delayed, depth.in_flight, depth.dead) == (1, 0, 0)
    assert depth.next_due_seconds is not None
    assert 50 < depth.next_due_seconds <= 60
    (attempt,) = queue.peek(1, state="failed")
    assert (attempt.error_type, attempt.error) == ("LookupError", "no such order")


@pytest.mark.parametrize(("on_error", "dead"), [("bury", 1), ("discard", 0)])
def test_on_error_of_the_queue_holds_without_a_retry(
    make_queue: MakeQueue, make_worker: MakeWorker, on_error: str, dead: int
) -> None:
    queue = make_queue(on_error=on_error)
    worker, last = make_worker(queue), []

    def handle(_: Any, delivery: Delivery) -> None:
        last.append(delivery.is_last_attempt)
        raise LookupError("no such order")

    worker.register("created", handle)
    queue.publish({"type": "created"})

    assert worker.run_once().failed == 1
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, dead)
    assert [each.reason for each in queue.peek(9, state="dead")] == ["handler_error"] * dead
    assert last == [True]


def test_each_handler_has_its_own_attempts_and_the_rest_those_of_the_worker(
    make_queue: MakeQueue, make_worker: MakeWorker
) -> None:
    queue = make_queue(retry_backoff=tenacity.wait_fixed(60))
    worker = make_worker(queue, retry=Retry(max_attempts=3, backoff=AT_ONCE))
    attempts: list[tuple[str | None, int, bool]] = []

    def handle(_: Any, delivery: Delivery) -> None:
        attempts.append((delivery.message_type, delivery.attempt, delivery.is_last_attempt))
        raise LookupError(f"attempt {delivery.attempt}")

    worker.register("once", handle, retry=Retry(max_attempts=1))
    worker.register("twice", handle, retry=Retry(max_attempts=2, backoff=AT_ONCE))
    worker.register("thrice", handle)
    for name in ("once", "twice", "thrice"):
        queue.publish({"type": name})
        while worker.run_once().claimed:
            pass

    assert attempts == [
        ("once", 1, True),
        *(("twice", 1, False), ("twice", 2, True)),
        *(("thrice", 1, False), ("thrice", 2, False), ("thrice", 3, True)),
    ]
    dead = sorted((each.message.json()["type"], each.reason, each.error) for each in queue.peek(9, state="dead"))
    assert dead == [
        ("once", "max_attempts", "attempt 1"),
        ("thrice", "max_attempts", "attempt 3"),
        ("twice", "max_attempts", "attempt 2"),
    ]


def test_a_handlers_backoff_grows_with_its_attempts(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    queue = make_queue()
    worker = make_worker(queue)
    worker.register("created", fail, retry=Retry(backoff=lambda state: 100.0 * state.attempt_number))
    queue.publish({"type": "created"})

    assert worker.run_once().failed == 1
    seconds = queue.depth().next_due_seconds
    assert seconds is not None
    assert 90 < seconds <= 100


def test_a_rejected_message_is_buried_at_once_with_its_reason(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    events: list[QueueEvent] = []
    queue = make_queue(on_event=events.append)
    worker = make_worker(queue)

    def reject(_: Any) -> None:
        raise Reject("negative amount", reason="invalid_order")

    worker.register("created", reject, retry=Retry(max_attempts=5, backoff=AT_ONCE))
    queue.publish({"type": "created"})

    report = worker.run_once()
    assert (report.rejected, report.failed, report.buried) == (1, 0, 1)
    (dead,) = queue.peek(1, state="dead")
    assert (dead.reason, dead.error_type, dead.error) == ("invalid_order", "Reject", "negative amount")
    assert [str(event.outcome) for event in events if event.operation == "handle"] == ["refused"]


def test_one_failure_leaves_its_neighbours_alone(queue: Any, make_worker: MakeWorker) -> None:
    worker, got = make_worker(queue, concurrency=3), []

    def handle(order: dict[str, Any]) -> None:
        got.append(order["n"])
        if order["n"] == 1:
            raise Reject

    worker.register("created", handle)
    queue.publish_many([{"type": "created", "n": n} for n in range(3)])

    report = worker.run_once()
    assert (report.handled, report.rejected) == (2, 1)
    assert sorted(got) == [0, 1, 2]
    assert queue.depth().dead == 1


def test_a_verdict_that_comes_too_late_is_counted_as_lost_and_stops_nothing(
    make_queue: MakeQueue, make_worker: MakeWorker, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(visibility_timeout_seconds=0.05, heartbeat_interval_seconds=0)
    worker, seen = make_worker(queue), []

    def outlive(_: Any, delivery: Delivery) -> None:
        seen.append(delivery.attempt)
        if delivery.attempt == 1:
            other = make_queue(visibility_timeout_seconds=0.05)
            with other.claim(1, wait_seconds=20) as lease:  # the expired message, with another consumer
                assert lease.messages[0].delivery_count == 2
                lease.nack(error="again")
            seen.append(delivery.lost)

    worker.register("created", outlive)
    queue.publish({"type": "created"})

    report = worker.run_once()
    assert (report.lost, report.handled, report.claimed) == (1, 0, 1)
    assert any("its verdict was not accepted (LeaseLostError)" in text for text in caplog.messages)
    assert worker.run_once().handled == 1
    assert seen == [1, True, 3]


def test_what_would_never_run_ends_the_worker_and_costs_no_attempt(
    queue: Any, make_worker: MakeWorker, flavour: Any
) -> None:
    worker = make_worker(queue)
    worker.register("created", iter_of)
    queue.publish({"type": "created"})

    with pytest.raises(TypeError, match="which does nothing by itself"):
        worker.run_once()
    with queue.claim() as lease:
        assert lease.messages[0].delivery_count == 1


def iter_of(payload: Any) -> Any:
    """Return a generator, which does no work until it is iterated."""
    return (each for each in payload)


def test_policies_that_cannot_work_are_refused(make_queue: MakeQueue, make_worker: MakeWorker) -> None:
    with pytest.raises(ConfigurationError, match="max_attempts must be None or an int from 1 to 4000, not 0"):
        Retry(max_attempts=0)
    with pytest.raises(OptionTypeError, match="backoff must be one of tenacity's wait strategies"):
        Retry(backoff=5)  # type: ignore[arg-type]
    queue = make_queue(max_delivery_count=3)
    with pytest.raises(ConfigurationError, match="max_attempts=4 has no effect"):
        make_worker(queue, retry=Retry(max_attempts=4))
    with pytest.raises(ConfigurationError, match="delivers at most once"):
        make_worker(make_queue(visibility_timeout_seconds=None, max_delivery_count=None))
    for wrong in ({"concurrency": 0}, {"on_unhandled": "drop"}, {"stop_timeout_seconds": -1}, {"lease_seconds": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            make_worker(queue, **wrong)
    with pytest.raises(OptionTypeError, match="restart_backoff must be"):
        make_worker(queue, restart_backoff=5)
    with pytest.raises(ConfigurationError, match="consumer is blank"):
        make_worker(queue, name=" ")
    with pytest.raises(ConfigurationError, match="has no handler"):
        make_worker(queue).run_once()
