"""A DAG that publishes what stands in its file: Airflow stores counts of it, in plain and in mapped tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from sluicegate import RedisMessageQueue
from tests.airflow.deployment import Deployment, states, xcoms

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "publishes.py"


def serialized(dag: DAG) -> dict[str, dict[str, Any]]:
    """Return the tasks of a DAG by their id, as Airflow's database would hold them."""
    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # Airflow 3.1
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # type: ignore[no-redef]

    tasks = json.loads(json.dumps(DagSerialization.to_dict(dag)))["dag"]["tasks"]
    return {task["__var"]["task_id"]: task["__var"] for task in tasks}


def depths(queue: RedisMessageQueue, url: str, *suffixes: str) -> list[int]:
    """Return how many messages were published to the queue and to those with the suffixes."""
    counts = []
    for suffix in ("", *suffixes):
        with RedisMessageQueue(queue.name + suffix, url=url) as each:
            counts.append(each.depth().published_total)
    return counts


def test_messages_of_plain_and_mapped_tasks_are_published_and_not_stored(
    airflow_deployment: Deployment, queue: RedisMessageQueue, embedded_url: str
) -> None:
    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["publishes"].test(run_conf={"queue": queue.name})
        stored = serialized(dags["publishes"])

    assert set(states(run).values()) == {"success"}
    assert depths(queue, embedded_url, "-due", "-same", "-each", "-listed") == [5 + 2, 1, 4, 6, 6]
    assert b"CANARY" not in airflow_deployment.stored()

    assert stored["plain"]["messages"] == "list of 5"
    assert stored["same"]["partial_kwargs"]["messages"] == "list of 2"
    assert stored["called"]["partial_kwargs"]["messages"] == "<lambda>"
    assert stored["each"]["expand_input"]["value"]["__var"] == {"messages": ["list of 1", "list of 3", "<lambda>"]}
    assert [each["__var"]["messages"] for each in stored["listed"]["expand_input"]["value"]] == [
        "list of 2",
        "generator",
    ]
    assert airflow_deployment.rendered(run, "plain")["messages"] == "list of 5"


def test_a_rendered_time_is_when_messages_fall_due(
    airflow_deployment: Deployment, queue: RedisMessageQueue, embedded_url: str
) -> None:
    with airflow_deployment.dags([DAG_FILE]) as dags:
        dags["publishes"].test(run_conf={"queue": queue.name})

    with RedisMessageQueue(queue.name + "-due", url=embedded_url) as due:
        assert (due.depth().ready, due.depth().delayed) == (0, 1)


def test_mapped_tasks_and_runs_have_positions_of_their_own(
    airflow_deployment: Deployment, queue: RedisMessageQueue
) -> None:
    with airflow_deployment.dags([DAG_FILE]) as dags:
        first = dags["publishes"].test(run_conf={"queue": queue.name})
        second = dags["publishes"].test(run_conf={"queue": queue.name})

    for run in (first, second):
        assert [(each["published"], each["duplicates"]) for each in xcoms(run)["same"]] == [(2, 0), (2, 0)]


def test_the_event_of_an_outlet_holds_the_counts(airflow_deployment: Deployment, queue: RedisMessageQueue) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["publishes"].test(run_conf={"queue": queue.name})

    with create_session() as session:
        which = select(AssetEvent).where(AssetEvent.source_run_id == run.run_id, AssetEvent.source_task_id == "plain")
        extra = session.scalars(which).one().extra
    assert extra == extra | xcoms(run)["plain"]
    assert (extra["queue"], extra["published"], extra["duplicates"]) == (queue.name, 5, 0)


def make_dag() -> DAG:
    with DAG("same", schedule=None) as dag:

        @task
        def make() -> list[list[int]]:
            return [[1], [2, 3]]

        publish = RedisQueuePublishOperator.partial
        publish(task_id="generator", messages=(number for number in range(3))).expand(queue_name=["a", "b"])
        publish(task_id="iterator", messages=iter([1])).expand(queue_name=["a", "b"])
        publish(task_id="function", messages=notes).expand(queue_name=["a", "b"])
        publish(task_id="output", messages=make()).expand(queue_name=["a", "b"])
        publish(task_id="outputs", queue_name="a").expand(messages=make())
    return dag


def notes() -> list[str]:
    return ["CANARY"]


def test_what_is_stored_does_not_change_from_parse_to_parse() -> None:
    first, second = serialized(make_dag()), serialized(make_dag())

    assert first == second
    shown = {name: first[name]["partial_kwargs"]["messages"] for name in ("generator", "iterator", "function")}
    assert shown == {"generator": "generator", "iterator": "iterator", "function": "notes"}
    assert first["output"]["partial_kwargs"]["messages"]["__type"] == "xcomref"
    assert "make" in json.dumps(first["outputs"]["expand_input"])


@pytest.mark.parametrize("messages", [{"a": [1]}, "text", (number for number in range(3))])
def test_what_cannot_be_mapped_over_is_refused_when_the_file_is_parsed(messages: Any) -> None:
    publish = RedisQueuePublishOperator.partial(task_id="publish", queue_name="orders")

    with DAG("refused", schedule=None), pytest.raises((TypeError, ValueError), match=r"expand\("):
        publish.expand(messages=messages)
    publish.expand(messages=[["text"]])  # Airflow warns of what was never mapped


def test_partial_checks_its_arguments_as_airflow_does() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'message'"):
        RedisQueuePublishOperator.partial(task_id="publish", message=[1])
