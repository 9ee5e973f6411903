"""The ops that redrive and purge: they say what they did, repeat safely, and delete nothing by default."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import PurgeConfig, RedisQueueResource, RedriveConfig, build_purge_op, build_redrive_op
from sluicegate import DeadMessage, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster


def run(op: dg.OpDefinition, resource: RedisQueueResource, config: dg.Config | None = None) -> Any:
    @dg.job(resource_defs={"queue": resource}, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    run_config = dg.RunConfig(ops={op.name: config}) if config is not None else None
    return job.execute_in_process(run_config=run_config, raise_on_error=False)


def output_of(result: dg.ExecuteInProcessResult, name: str) -> dict[str, Any]:
    assert result.success
    report: dict[str, Any] = result.output_for_node(name)
    (event,) = [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    shown = {key: value.value for key, value in event.step_output_data.metadata.items()}
    counts = {**report, **report.get("deleted", {})}
    assert shown == {
        f"sluicegate/{key}": value for key, value in counts.items() if key != "deleted" and value is not None
    }
    return report


def redrive(resource: RedisQueueResource, where: Any = None, **config: Any) -> dict[str, Any]:
    return output_of(run(build_redrive_op(where=where), resource, RedriveConfig(**config)), "redrive_dead_letters")


def purge(resource: RedisQueueResource, **config: Any) -> dict[str, Any]:
    return output_of(run(build_purge_op(), resource, PurgeConfig(**config)), "purge")


def failure_of(result: dg.ExecuteInProcessResult, name: str) -> str:
    assert not result.success
    return result.failure_data_for_node(name).error.to_string()  # type: ignore[union-attr]


def bury(queue: RedisMessageQueue, count: int, reason: str = "broken", error: Exception | None = None) -> list[str]:
    queue.publish_many({"n": number, "reason": reason} for number in range(count))
    with queue.claim(count) as lease:
        ids = [message.id for message in lease]
        lease.bury(list(lease), reason=reason, error=error or ValueError("no such customer"))
    return ids


# ---------------------------------------------------------------------------------------------------- redrive


def test_a_redrive_without_config_moves_every_dead_letter(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    bury(queue, 5)
    report = output_of(run(build_redrive_op(page_size=2), resource), "redrive_dead_letters")
    assert report == {
        "queue": queue.name,
        "redriven": 5,
        "blocked": 0,
        "scanned": 5,
        "after": None,
        "dry_run": False,
    }
    assert (queue.depth().ready, queue.depth().dead) == (5, 0)


def odd(letter: DeadMessage) -> bool:
    assert letter.message is not None
    return bool(letter.message.json()["n"] % 2)


@pytest.mark.parametrize(
    ("config", "where", "redriven"),
    [
        ({"reason": "broken"}, None, 4),
        ({"error_type": "KeyError"}, None, 3),
        ({"error_type": "KeyError"}, odd, 1),
        ({}, odd, 3),
        ({"older_than_seconds": 3600.0}, None, 0),
        ({"older_than_seconds": 0.0, "reason": "other", "error_type": "ValueError"}, None, 0),
    ],
)
def test_filters_choose_what_moves(
    queue: RedisMessageQueue,
    resource: RedisQueueResource,
    config: dict[str, Any],
    where: Callable[[DeadMessage], bool] | None,
    redriven: int,
) -> None:
    bury(queue, 4)
    bury(queue, 3, "other", KeyError("tenant"))
    assert redrive(resource, where, dry_run=True, **config)["redriven"] == redriven
    assert queue.depth().dead == 7
    assert redrive(resource, where, **config)["redriven"] == redriven
    assert (queue.depth().ready, queue.depth().dead) == (redriven, 7 - redriven)


def test_ids_and_keys_choose_what_moves(url: str, queue: RedisMessageQueue) -> None:
    keyed = RedisQueueResource(url=url, queue_name=queue.name, deduplication_key="n")
    with keyed.get_queue() as theirs:
        ids = bury(theirs, 4)
    assert redrive(keyed, ids=ids[:2])["redriven"] == 2
    assert redrive(keyed, deduplication_key="3")["redriven"] == 1
    assert queue.depth().dead == 1


def test_a_limit_is_continued_behind_where_it_stopped(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    bury(queue, 5)
    first = redrive(resource, limit=2)
    assert (first["redriven"], queue.depth().dead) == (2, 3)
    assert first["after"] is not None
    assert redrive(resource, after=first["after"]) == {**first, "redriven": 3, "scanned": 3, "after": None}


def test_a_full_queue_stops_a_redrive_where_another_run_continues(url: str, queue: RedisMessageQueue) -> None:
    bury(queue, 5)
    small = RedisQueueResource(url=url, queue_name=queue.name, max_pending_length=2)
    first = redrive(small)
    assert (first["redriven"], queue.depth().dead) == (2, 3)
    queue.purge("pending")
    assert redrive(small, after=first["after"])["redriven"] == 2


def test_a_redrive_that_is_killed_midway_is_completed_by_the_next(
    queue: RedisMessageQueue, resource: RedisQueueResource
) -> None:
    def stopping(letter: DeadMessage) -> bool:
        assert letter.message is not None
        if letter.message.json()["n"] == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    bury(queue, 9)
    op = build_redrive_op(where=stopping, page_size=2)
    process = multiprocessing.get_context("fork").Process(target=run, args=(op, resource))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert queue.depth().dead == 5
    assert redrive(resource)["redriven"] == 5
    assert sorted(message.json()["n"] for message in queue.peek(100)) == list(range(9))


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"limit": 0}, "limit must be None"),
        ({"older_than_seconds": -1.0}, "older_than_seconds must be a number of 0 or more"),
        ({"after": "elsewhere"}, "after='elsewhere' is not what a redrive with these arguments reported"),
    ],
)
def test_a_config_that_cannot_work_fails_without_a_retry(
    queue: RedisMessageQueue, resource: RedisQueueResource, config: dict[str, Any], error: str
) -> None:
    bury(queue, 1)
    op = build_redrive_op(retry_policy=dg.RetryPolicy(max_retries=2))
    result = run(op, resource, RedriveConfig(**config))
    assert f"op 'redrive_dead_letters': {error}" in failure_of(result, "redrive_dead_letters")
    assert not [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert queue.depth().dead == 1


def test_an_outage_is_tried_again() -> None:
    away = RedisQueueResource(url=f"redis://127.0.0.1:{free_port()}/0", queue_name="orders", retry_budget_seconds=0)
    result = run(build_redrive_op(retry_policy=dg.RetryPolicy(max_retries=1)), away)
    assert "127.0.0.1" in failure_of(result, "redrive_dead_letters")
    retries = [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert len(retries) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"page_size": 0}, "op 'redrive_dead_letters': page_size must be an int from 1 to 1000"),
        ({"where": "odd"}, "op 'redrive_dead_letters': where must be None or a callable"),
        ({"resource_key": "my queue"}, "resource_key must be a Python identifier"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_build_time(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        build_redrive_op(**options)


# ---------------------------------------------------------------------------------------------------- purge


@pytest.fixture
def filled(url: str, queue: RedisMessageQueue) -> RedisQueueResource:
    """Return a queue with something in every state: 3 pending, 2 delayed, 4 dead, 1 returned, 1 in flight, 5 done."""
    resource = RedisQueueResource(
        url=url, queue_name=queue.name, enable_completed_queue=True, enable_failed_queue=True, max_failed_length=None
    )
    with resource.get_queue() as theirs:
        bury(theirs, 4)
        theirs.publish_many({"n": number} for number in range(5))
        with theirs.claim(5) as lease:
            assert len(lease) == 5
        theirs.publish_many([{"n": 0}])
        theirs.claim(1).release()
    queue.publish_many([{"n": 1}, {"n": 2}], delay_seconds=600)
    queue.publish_many({"n": number} for number in range(3))
    return resource


def test_a_purge_only_counts_unless_it_is_told_otherwise(filled: RedisQueueResource, queue: RedisMessageQueue) -> None:
    before = queue.depth()
    report = purge(filled, everything=True)
    expected = {"pending": 3, "returned": 1, "delayed": 2, "dead": 4, "completed": 5, "failed": 4}
    assert report == {"queue": queue.name, "deleted": expected, "total": 19, "dry_run": True}
    after = queue.depth()
    assert (after.pending, after.returned, after.delayed, after.dead) == (
        before.pending,
        before.returned,
        before.delayed,
        before.dead,
    )
    assert purge(filled, everything=True, dry_run=False) == {**report, "dry_run": False}
    assert purge(filled, everything=True)["total"] == 0


def test_a_purge_deletes_the_states_that_it_names(filled: RedisQueueResource, queue: RedisMessageQueue) -> None:
    report = purge(filled, states=["dead", "delayed", "dead"], dry_run=False)
    assert (report["deleted"], report["total"]) == ({"dead": 4, "delayed": 2}, 6)
    assert (queue.depth().pending, queue.depth().dead, queue.depth().delayed) == (3, 0, 0)
    elsewhere = RedisQueueResource(url=filled.url)
    assert purge(elsewhere, queue_name=queue.name, states=["pending"], dry_run=False)["total"] == 3


def test_messages_in_flight_stay(queue: RedisMessageQueue, resource: RedisQueueResource) -> None:
    queue.publish_many([{"n": 1}, {"n": 2}])
    with queue.claim(1) as lease:
        assert purge(resource, everything=True, dry_run=False)["total"] == 1
        assert len(lease) == queue.depth().in_flight == 1


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({}, "give either state, one or more of pending,"),
        ({"states": ["dead"], "everything": True}, "give either state, one or more of pending,"),
        ({"states": ["dead", "in_flight"]}, "not 'in_flight'; nothing was deleted"),
    ],
)
def test_a_purge_that_names_no_states_fails_without_a_retry(
    filled: RedisQueueResource, queue: RedisMessageQueue, config: dict[str, Any], error: str
) -> None:
    op = build_purge_op(retry_policy=dg.RetryPolicy(max_retries=2))
    result = run(op, filled, PurgeConfig(dry_run=False, **config))
    assert error in failure_of(result, "purge")
    assert not [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert queue.depth().dead == 4


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9])
def test_the_records_of_a_history_are_counted(url: str, queue: RedisMessageQueue, count: int) -> None:
    kept = RedisQueueResource(url=url, queue_name=queue.name, enable_completed_queue=True)
    with kept.get_queue() as theirs:
        theirs.publish_many({"n": number} for number in range(count))
        with theirs.claim(10) as lease:
            assert len(lease) == count
    assert purge(kept, states=["completed"])["total"] == count


def test_the_documented_ops_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(snippet("dagster-administration"), "dagster-administration", "exec"), names)  # noqa: S102
    defs: dg.Definitions = names["defs"]
    with RedisQueueResource(url=url).get_queue("orders to repair") as queue:
        bury(queue, 3, "handler_error")
        bury(queue, 2, "other")
        assert defs.resolve_job_def("repair_orders").execute_in_process().success
        assert (queue.depth().ready, queue.depth().dead) == (3, 0)
