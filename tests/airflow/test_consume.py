"""A batch handed on as an XCom: what it holds, when it is acked, and what a worker's death leaves."""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import timezone

from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from sluicegate import RedisMessageQueue
from sluicegate.errors import RedisUnavailableError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.support.servers import free_port
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "consumes.py"
DAY = timezone.parse("2013-01-01")


class Try:
    """One try of the task: its batch, and Airflow's word that the batch and the success are stored."""

    def __init__(self, operator: RedisQueueConsumeOperator, instance: Instance) -> None:
        self._operator = operator
        self._context: Any = {"ti": instance}
        self.batch: list[dict[str, Any]] = operator.execute(self._context)

    @property
    def payloads(self) -> list[Any]:
        return [message["payload"] for message in self.batch]

    def succeed(self) -> None:
        for callback in self._operator.on_success_callback:
            callback(self._context)


@pytest.fixture
def consume(queue: RedisMessageQueue, instance: Instance) -> Callable[..., Try]:
    """Run a try of the operator on the test's queue."""

    def execute(*, queue_name: str | None = None, **arguments: Any) -> Try:
        name = queue.name if queue_name is None else queue_name
        return Try(RedisQueueConsumeOperator(task_id="batch", queue_name=name, **arguments), instance)

    return execute


# ---------------------------------------------------------------------- by Airflow itself


@pytest.mark.parametrize("fails", [False, True], ids=["", "first try fails"])
def test_a_dag_maps_over_a_batch_that_is_acked_once_it_is_stored(
    airflow_deployment: Deployment, queue: RedisMessageQueue, fails: bool
) -> None:
    queue.publish_many({"n": n} for n in range(5))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["consumes"].test(run_conf={"queue": queue.name, "fails": fails})

    assert set(states(run).values()) == {"success"}
    found = xcoms(run)
    assert found["work"] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [message["delivery_count"] for message in found["batch"]] == [1 + fails] * 3
    assert found["before"] == {"in_flight": 3, "acked": 0}
    assert (queue.stats().acked, queue.depth().in_flight, queue.depth().ready) == (3, 0, 2)


def test_a_run_that_is_cleared_says_that_its_batch_is_acked_and_takes_no_other(
    airflow_deployment: Deployment, queue: RedisMessageQueue, capfd: pytest.CaptureFixture[str]
) -> None:
    queue.publish_many({"n": n} for n in range(5))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        for _ in range(2):  # the second call clears the run of the first
            conf = {"queue": queue.name, "fails": False}
            run = dags["consumes"].test(logical_date=DAY, run_after=DAY, run_conf=conf)

    assert states(run)["batch"] == "skipped"
    assert "handed its batch on and acked 3 messages, which cannot be read again" in capfd.readouterr().out
    assert (queue.stats().acked, queue.depth().ready) == (3, 2)


# ---------------------------------------------------------------------- what it hands on


@pytest.mark.parametrize(
    ("stored", "payload", "encoding"),
    [
        ({"a": [1, None, "ü"]}, {"a": [1, None, "ü"]}, "json"),
        ([1, 2], [1, 2], "json"),
        ("text", "text", "text"),
        ("17", "17", "text"),
        (b"{not json", "{not json", "text"),
        (b'{"a": NaN}', '{"a": NaN}', "text"),
        (b'{"a": 1e999}', '{"a": 1e999}', "text"),
        ({"__classname__": "os.system"}, '{"__classname__":"os.system"}', "text"),
        ([{"a": {"__type": "x", "__var": 1}}], '[{"a":{"__type":"x","__var":1}}]', "text"),
        pytest.param(b"[" * 200 + b"]" * 200, "[" * 200 + "]" * 200, "text", id="deep"),
        pytest.param(b"[" * 5000 + b"]" * 5000, "[" * 5000 + "]" * 5000, "text", id="deeper"),
        (b'{"a": "\\ud800"}', '{"a": "\\ud800"}', "text"),
        (b"\xff\x00\xfe", base64.b64encode(b"\xff\x00\xfe").decode(), "base64"),
        (b"a\x00b", base64.b64encode(b"a\x00b").decode(), "base64"),
        (b'{"a": "\\u0000"}', base64.b64encode(b'{"a": "\\u0000"}').decode(), "base64"),
        (b"", "", "text"),
    ],
)
def test_every_payload_becomes_a_value_that_airflow_stores_as_it_is(
    queue: RedisMessageQueue, consume: Callable[..., Try], stored: Any, payload: Any, encoding: str
) -> None:
    try:
        from airflow.sdk.serde import deserialize, serialize
    except ImportError:  # Airflow 3.1
        from airflow.serialization.serde import deserialize, serialize

    queue.publish(stored)

    (message,) = consume().batch

    assert (message["payload"], message["encoding"]) == (payload, encoding)
    assert deserialize(json.loads(json.dumps(serialize(message)))) == message


def test_a_message_comes_with_its_id_headers_times_and_count(
    queue: RedisMessageQueue, consume: Callable[..., Try]
) -> None:
    queue.publish({"n": 1}, headers={"tenant": "acme"})
    (sent,) = queue.peek()
    queue.claim().nack()

    assert consume().batch == [
        {
            "id": sent.id,
            "payload": {"n": 1},
            "encoding": "json",
            "headers": {"tenant": "acme"},
            "delivery_count": 2,
            "enqueued_at": sent.enqueued_at.isoformat(),
        }
    ]


def test_what_does_not_fit_is_released_in_its_order_for_the_next_run(
    queue: RedisMessageQueue, consume: Callable[..., Try], instance: Instance
) -> None:
    queue.publish_many({"n": n, "note": "x" * 1000} for n in range(10))
    queue.publish({"n": 10})

    first = consume(max_xcom_bytes=4000)
    assert [payload["n"] for payload in first.payloads] == [0, 1, 2]
    assert len(json.dumps(first.batch)) <= 4000
    assert (queue.depth().ready, queue.depth().in_flight) == (8, 3)
    first.succeed()

    instance.run_id = "the next run"
    assert [payload["n"] for payload in consume(max_xcom_bytes=4000).payloads] == [3, 4, 5]
    assert queue.peek(state="returned")[0].delivery_count == 0


def test_a_list_that_fits_exactly_is_handed_on(queue: RedisMessageQueue, consume: Callable[..., Try]) -> None:
    queue.publish_many({"n": n} for n in range(3))
    size = len(json.dumps(consume(ack_policy="immediate").batch))
    queue.publish_many({"n": n} for n in range(3))

    assert len(consume(ack_policy="immediate", max_xcom_bytes=size).batch) == 3
    queue.publish_many({"n": n} for n in range(3))
    assert len(consume(ack_policy="immediate", max_xcom_bytes=size - 1).batch) == 2


def test_a_message_that_never_fits_becomes_a_dead_letter_and_only_its_id_is_handed_on(
    queue: RedisMessageQueue, consume: Callable[..., Try], instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.publish_many([{"n": 0}, {"n": 1, "note": "CANARY" * 1000}, {"n": 2}])
    large = queue.peek()[1].id

    done = consume(max_xcom_bytes=4000)
    done.succeed()

    assert done.payloads == [{"n": 0}, {"n": 2}]
    assert instance.pushed == {"too_large": [large]}
    (dead,) = queue.peek(state="dead")
    assert (dead.id, dead.reason) == (large, "too_large_for_xcom")
    assert "max_xcom_bytes=4000; raise it and redrive, or drain the queue" in dead.error
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (0, 0, 2)
    log = capsys.readouterr().out
    assert large in log
    assert "CANARY" not in log


@pytest.mark.parametrize("skip", [False, True])
def test_an_empty_queue_hands_on_an_empty_list_or_skips(
    queue: RedisMessageQueue, consume: Callable[..., Try], capsys: pytest.CaptureFixture[str], skip: bool
) -> None:
    if skip:
        with pytest.raises(AirflowSkipException, match="had no message"):
            consume(skip_if_empty=True)
    else:
        assert consume().batch == []
    assert "nobody has published to this queue yet; if that is wrong, check queue_name" in capsys.readouterr().out
    queue.publish({"n": 1})
    queue.pause()
    assert consume().batch == []
    assert "nothing to claim: paused, 1 ready" in capsys.readouterr().out


# ---------------------------------------------------------------------- tries


def test_a_retry_takes_over_the_batch_of_a_try_that_died(queue: RedisMessageQueue, consume: Callable[..., Try]) -> None:
    queue.publish_many({"n": n} for n in range(5))
    first = consume(max_messages=3)
    payloads = first.payloads
    del first  # it never heard that Airflow stored its batch
    gc.collect()

    retry = consume(max_messages=3)
    assert retry.payloads == payloads == [{"n": 0}, {"n": 1}, {"n": 2}]
    retry.succeed()

    assert (queue.stats().acked, queue.depth().ready, queue.depth().in_flight) == (3, 2, 0)


def test_a_try_that_comes_back_after_its_retry_acks_nothing(
    queue: RedisMessageQueue, consume: Callable[..., Try], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.publish({"n": 1})
    first = consume()
    retry = consume()

    first.succeed()
    assert queue.stats().acked == 0
    assert "could not be acked, so it will be delivered again" in capsys.readouterr().out
    retry.succeed()
    assert queue.stats().acked == 1


def test_immediate_acks_before_anything_is_stored(queue: RedisMessageQueue, consume: Callable[..., Try]) -> None:
    queue.publish_many({"n": n} for n in range(5))

    first = consume(ack_policy="immediate", max_messages=3)
    assert (queue.stats().acked, queue.depth().in_flight) == (3, 0)
    first.succeed()

    assert consume(ack_policy="immediate").payloads == [{"n": 3}, {"n": 4}]
    assert queue.stats().acked == 5


def test_callbacks_of_the_user_still_run(queue: RedisMessageQueue, consume: Callable[..., Try]) -> None:
    queue.publish({"n": 1})
    called: list[int] = []

    consume(on_success_callback=lambda context: called.append(queue.stats().acked)).succeed()

    assert called == [1]


# ---------------------------------------------------------------------- what cannot work


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue_name": ""}, "queue name is blank"),
        ({"max_messages": 0}, "max_messages must be an int from 1 to 10000"),
        ({"max_xcom_bytes": "1 MB"}, "max_xcom_bytes must be an int from 1"),
        ({"ack_policy": "manual"}, "ack_policy must be 'on_success' or 'immediate', not 'manual'"),
        ({"do_xcom_push": False}, "leaves nowhere to put the messages"),
        ({"lease_seconds": -1}, "lease_seconds must be"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_work_fails_at_once_and_says_what_to_do(
    queue: RedisMessageQueue, consume: Callable[..., Try], arguments: dict[str, Any], words: str
) -> None:
    queue.publish({"n": 1})

    with pytest.raises(AirflowFailException) as failed:
        consume(**arguments)

    assert words in str(failed.value)
    assert queue.depth().pending == 1


def test_a_redis_that_is_away_fails_the_try_and_names_the_server(connect: Connect, instance: Instance) -> None:
    port = free_port()
    connect(host="localhost", port=port, password=PASSWORD)
    options = {"retry_budget_seconds": 0}

    with pytest.raises(RedisUnavailableError, match=f"localhost:{port}") as failed:
        Try(RedisQueueConsumeOperator(task_id="batch", queue_name="orders", queue_options=options), instance)

    assert PASSWORD not in str(failed.value)


def test_a_missing_connection_is_named(instance: Instance) -> None:
    operator = RedisQueueConsumeOperator(task_id="batch", queue_name="orders", redis_conn_id="no_such_connection")

    with pytest.raises(AirflowException, match="no_such_connection"):
        Try(operator, instance)


# ---------------------------------------------------------------------- the documentation


def test_the_dag_of_the_documentation_ships_every_order(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    file = tmp_path / "documented_consume.py"
    file.write_text(snippet("airflow-consume"))
    queue = RedisMessageQueue("to-ship", url=embedded_url)
    queue.publish_many({"id": number} for number in (7, 8))
    ids = [message.id for message in queue.peek()]

    with airflow_deployment.dags([file]) as dags:
        run = dags["ship_orders"].test()

    assert xcoms(run)["ship"] == [f"shipped order {n}, message {id_}" for n, id_ in zip((7, 8), ids, strict=True)]
    assert (queue.depth().ready, queue.stats().acked) == (0, 2)
    queue.close()
