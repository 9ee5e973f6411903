"""Redrive and purge from a task: what they move and delete, what they report, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.administration import RedisQueuePurgeOperator, RedisQueueRedriveOperator
from sluicegate import DeadMessage, RedisMessageQueue
from sluicegate.errors import RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "administers.py"
OPERATORS = [RedisQueueRedriveOperator, RedisQueuePurgeOperator]


def execute(kind: Any, queue: RedisMessageQueue | str, **arguments: Any) -> dict[str, Any]:
    name = queue if isinstance(queue, str) else queue.name
    report: dict[str, Any] = kind(task_id="task", queue_name=name, **arguments).execute({})
    return report


def redrive(queue: RedisMessageQueue | str, **arguments: Any) -> dict[str, Any]:
    return execute(RedisQueueRedriveOperator, queue, **arguments)


def purge(queue: RedisMessageQueue | str, **arguments: Any) -> dict[str, Any]:
    return execute(RedisQueuePurgeOperator, queue, **arguments)


def die(queue: RedisMessageQueue, *numbers: int, reason: str = "bad") -> list[str]:
    """Bury messages and return their ids."""
    queue.publish_many({"n": number, "note": "CANARY"} for number in numbers)
    lease = queue.claim(len(numbers))
    lease.bury(reason=reason)
    return [message.id for message in lease.messages]


def numbers(queue: RedisMessageQueue) -> list[int]:
    return [message.json()["n"] for message in queue.peek(100)]


# ---------------------------------------------------------------------- by Airflow itself


def test_a_dag_redrives_in_steps_and_purges_the_rest(airflow_deployment: Deployment, queue: RedisMessageQueue) -> None:
    die(queue, 1, 2, 3, reason="timeout")
    others = die(queue, 4, 5, reason="bad")

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["administers"].test(run_conf={"queue": queue.name, "reason": "timeout", "ids": others})

    assert set(states(run).values()) == {"success"}
    found = xcoms(run)
    assert [found[task]["redriven"] for task in ("first", "second", "third")] == [2, 1, 1]
    assert found["first"]["after"] is not None
    assert found["second"] == {
        "queue": queue.name,
        "redriven": 1,
        "blocked": 0,
        "scanned": found["second"]["scanned"],
        "after": None,
        "dry_run": False,
    }
    assert found["looked"] == {
        "queue": queue.name,
        "deleted": {"dead": 1, "pending": 4},
        "total": 5,
        "dry_run": True,
    }
    assert found["purged"]["deleted"] == {"dead": 1}
    assert numbers(queue) == [1, 2, 3, 4]
    assert queue.depth().dead == 0


# ---------------------------------------------------------------------- redrive


def test_filters_reach_the_redrive(queue: RedisMessageQueue, capsys: pytest.CaptureFixture[str]) -> None:
    die(queue, 1, 2, reason="timeout")
    die(queue, 3, 4)

    def where(letter: DeadMessage) -> bool:
        assert letter.message is not None
        return bool(letter.message.json()["n"] % 2)

    assert redrive(queue, older_than_seconds=3600)["redriven"] == 0
    assert redrive(queue, deduplication_key="none")["redriven"] == 0
    assert redrive(queue, reason="timeout", where=where)["redriven"] == 1
    assert redrive(queue, where=where, page_size=1)["redriven"] == 1
    assert numbers(queue) == [1, 3]
    assert redrive(queue, queue_options={"max_pending_length": 3})["redriven"] == 1
    assert queue.depth().dead == 1
    log = capsys.readouterr().out
    assert "1 dead letters are redriven, 0 are blocked" in log
    assert "more may be left" in log
    assert "CANARY" not in log


def test_a_dry_run_counts_and_moves_nothing(queue: RedisMessageQueue, capsys: pytest.CaptureFixture[str]) -> None:
    die(queue, 1, 2, 3)

    assert redrive(queue, dry_run=True) == {
        "queue": queue.name,
        "redriven": 3,
        "blocked": 0,
        "scanned": 3,
        "after": None,
        "dry_run": True,
    }

    assert (queue.depth().dead, queue.depth().ready) == (3, 0)
    assert "3 dead letters would be redriven" in capsys.readouterr().out


def test_the_log_says_why_nothing_was_redriven(queue: RedisMessageQueue, capsys: pytest.CaptureFixture[str]) -> None:
    assert redrive(queue)["scanned"] == 0
    assert "nobody has published to this queue yet; if that is wrong, check queue_name" in capsys.readouterr().out

    die(queue, 1)
    redrive(queue, older_than_seconds=3600)
    assert "there was no dead letter to look at, of 1" in capsys.readouterr().out


# ---------------------------------------------------------------------- purge


@pytest.fixture
def full(queue: RedisMessageQueue) -> RedisMessageQueue:
    """Return a queue with messages in every state."""
    keeping = RedisMessageQueue(queue.name, url=queue.spec().url, enable_completed_queue=True, enable_failed_queue=True)
    keeping.publish_many({"n": n} for n in range(6))
    keeping.claim(1).ack()
    keeping.claim(1).nack(delay_seconds=1000)
    keeping.claim(1).bury()
    keeping.claim(1).release()
    keeping.close()
    return queue


EVERYTHING = {"pending": 2, "returned": 1, "delayed": 1, "dead": 1, "completed": 1, "failed": 2}


def test_everything_takes_an_explicit_word_and_a_dry_run_counts_the_same(full: RedisMessageQueue) -> None:
    assert purge(full, everything=True, dry_run=True)["deleted"] == EVERYTHING
    assert full.depth().dead == 1

    assert purge(full, everything=True) == {
        "queue": full.name,
        "deleted": EVERYTHING,
        "total": 8,
        "dry_run": False,
    }

    assert purge(full, everything=True, dry_run=True)["total"] == 0


def test_a_state_is_emptied_and_the_others_stay(full: RedisMessageQueue, capsys: pytest.CaptureFixture[str]) -> None:
    with full.claim(1):
        assert purge(full, state=["dead", "delayed", "dead"])["deleted"] == {"dead": 1, "delayed": 1}

    assert "2 are deleted (1 dead, 1 delayed); 1 messages are in flight and stay" in capsys.readouterr().out
    assert purge(full, everything=True, dry_run=True)["deleted"] == EVERYTHING | {
        "dead": 0,
        "delayed": 0,
        "returned": 0,
        "completed": 1,
    }


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_template_decides_about_a_dry_run_where_it_renders_native_objects(
    kind: Any, queue: RedisMessageQueue
) -> None:
    arguments = {"state": "dead"} if kind is RedisQueuePurgeOperator else {}
    die(queue, 1)
    with DAG("dag", render_template_as_native_obj=True):
        task = kind(task_id="task", queue_name=queue.name, dry_run="{{ params.dry_run }}", **arguments)

    task.render_template_fields({"params": {"dry_run": True}})

    assert task.execute({})["dry_run"] is True
    assert queue.depth().dead == 1
    assert callable(task.dry_run), "Airflow's own method"


# ---------------------------------------------------------------------- what cannot work


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (RedisQueueRedriveOperator, {"queue_name": ""}, "queue name is blank"),
        (
            RedisQueueRedriveOperator,
            {"dry_run": "False"},
            "True or False, not 'False'; a template gives",
        ),
        (RedisQueueRedriveOperator, {"limit": 0}, "limit must be None"),
        (RedisQueueRedriveOperator, {"page_size": 1001}, "page_size must be an int from 1 to 1000"),
        (RedisQueueRedriveOperator, {"older_than_seconds": "1 h"}, "older_than_seconds must be a number"),
        (RedisQueueRedriveOperator, {"ids": "['a']"}, "ids must be a list of message ids, not a text; give the output"),
        (RedisQueueRedriveOperator, {"after": "tomorrow"}, "give its report.after and the same filters"),
        (RedisQueueRedriveOperator, {"where": "dead"}, "where must be None or a callable"),
        (RedisQueuePurgeOperator, {"queue_name": " ", "state": "dead"}, "queue name is blank"),
        (RedisQueuePurgeOperator, {}, "give either state, one or more of pending, returned, delayed, dead"),
        (RedisQueuePurgeOperator, {"state": "dead", "everything": True}, "give either state"),
        (RedisQueuePurgeOperator, {"state": "in_flight"}, "not 'in_flight'; nothing was deleted"),
        (RedisQueuePurgeOperator, {"state": ["dead", "all"]}, "not 'all'; nothing was deleted"),
        (RedisQueuePurgeOperator, {"everything": 1}, "everything must be True or False, not 1"),
        (RedisQueuePurgeOperator, {"state": "dead", "dry_run": "True"}, "dry_run must be True or False, not 'True'"),
        (RedisQueuePurgeOperator, {"state": "dead", "dry_run": None}, "dry_run must be True or False, not None"),
    ],
)
def test_what_cannot_work_fails_at_once_and_says_what_to_do(
    queue: RedisMessageQueue, kind: Any, arguments: dict[str, Any], words: str
) -> None:
    die(queue, 1)

    with pytest.raises(AirflowFailException) as failed:
        execute(kind, arguments.pop("queue_name", queue), **arguments)

    assert words in str(failed.value)
    assert queue.depth().dead == 1
    queue.purge("dead")


def test_an_async_predicate_is_refused(queue: RedisMessageQueue) -> None:
    async def where(letter: DeadMessage) -> bool:
        return True

    die(queue, 1)
    with pytest.raises(AirflowFailException, match="where is async"):
        redrive(queue, where=where)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_redis_that_is_away_fails_the_try_and_names_the_server(connect: Connect, kind: Any) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)
    arguments = {"state": "dead"} if kind is RedisQueuePurgeOperator else {}

    with pytest.raises(RedisUnavailableError, match=f"localhost:{port}") as failed:
        execute(kind, "orders", queue_options={"retry_budget_seconds": 0}, **arguments)

    assert PASSWORD not in str(failed.value)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_missing_connection_is_named(kind: Any) -> None:
    arguments = {"state": "dead"} if kind is RedisQueuePurgeOperator else {}

    with pytest.raises(AirflowException, match="no_such_connection"):
        execute(kind, "orders", redis_conn_id="no_such_connection", **arguments)


# ---------------------------------------------------------------------- the documentation


def test_the_dag_of_the_documentation_tries_the_dead_again_and_cleans_up(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_administration.py"
    file.write_text(snippet("airflow-administration"))
    queue = RedisMessageQueue("orders-to-repair", url=embedded_url)
    die(queue, 1, 2, reason="max_delivery_count")
    die(queue, 3, reason="negative amount")

    with airflow_deployment.dags([file]) as dags:
        run = dags["repair_orders"].test()

    found = xcoms(run)
    assert (found["again"]["redriven"], found["clean"]["deleted"]) == (2, {"dead": 1})
    assert (queue.depth().ready, queue.depth().dead) == (2, 0)
    queue.purge("pending")
    queue.close()
