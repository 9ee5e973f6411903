"""`@task.redis_queue`: the decorated function is the handler of a drain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowFailException
from airflow.sdk import DAG, task

from airflow_provider_sluicegate.decorators.redis_queue import redis_queue_task
from sluicegate import DrainContext, Message, RedisMessageQueue
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "decorated.py"


def test_a_dag_of_decorated_functions_drains(
    airflow_deployment: Deployment, queue: RedisMessageQueue, embedded_url: str, tmp_path: Path
) -> None:
    queues = [queue, *(RedisMessageQueue(f"{queue.name}-{tenant}", url=embedded_url) for tenant in ("acme", "initech"))]
    for count, each in enumerate(queues, start=25):
        each.publish_many({"n": n} for n in range(count))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["decorated"].test(run_conf={"queue": queue.name, "folder": str(tmp_path)})

    assert states(run) == {"folder": "success", "plain": "success", "store[0]": "success", "store[1]": "success"}
    found = xcoms(run)
    assert (found["plain"]["acked"], found["plain"]["partitions"][0]["chunks"]) == (25, 3)
    assert [(each["queue"], each["acked"]) for each in found["store"]] == [
        (f"{queue.name}-acme", 26),
        (f"{queue.name}-initech", 27),
    ]
    assert found["store"][1]["run_id"] == f"decorated/store/{run.run_id}/1"
    assert {path.name: len(json.loads(path.read_text())) for path in tmp_path.glob("*.json")} == {
        "acme-0-0.json": 26,
        "initech-1-0.json": 27,
    }
    rendered = airflow_deployment.rendered(run, "plain")
    assert rendered["queue_name"] == queue.name
    for each in queues:
        assert (each.depth().ready, each.depth().in_flight) == (0, 0)
        each.close()


def run(function: Any, queue: RedisMessageQueue, instance: Instance, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Run the task of a decorated function once."""
    with DAG("dag"):
        operator = redis_queue_task(queue_name=queue.name)(function)(*args, **kwargs).operator  # type: ignore[union-attr]
    report: dict[str, Any] = operator.execute({"ti": instance, "ds": "2013-01-01"})  # type: ignore[union-attr, arg-type, typeddict-item]
    return report


def test_arguments_come_from_the_call_and_from_airflow(queue: RedisMessageQueue, instance: Instance) -> None:
    queue.publish_many({"n": n} for n in range(3))
    seen: list[Any] = []

    def one(
        batch: list[Message], first: str, second: str = "b", *, third: str, ds: str | None = None, **rest: Any
    ) -> None:
        seen.append((len(batch), first, second, third, ds, rest))

    def other(batch: list[Message], context: DrainContext, ds: str) -> None:
        seen.append((len(batch), context.run_id, ds))

    run(one, queue, instance, "a", third="c", fourth="d")
    queue.publish({"n": 3})
    instance.run_id = "the next run"
    run(other, queue, instance)

    assert seen == [
        (3, "a", "b", "c", "2013-01-01", {"fourth": "d"}),
        (1, "dag/task/the next run/-1", "2013-01-01"),
    ]


def test_what_the_function_returns_is_a_verdict_and_the_xcom_is_the_summary(
    queue: RedisMessageQueue, instance: Instance
) -> None:
    queue.publish_many({"n": n} for n in range(3))

    def process(batch: list[Message]) -> list[str]:
        return ["bury" if message.json()["n"] == 1 else "ack" for message in batch]

    report = run(process, queue, instance)

    assert (report["acked"], report["buried"]) == (2, 1)


def test_a_call_that_does_not_fit_the_function_fails_when_the_file_is_read() -> None:
    with DAG("dag"):

        @task.redis_queue(queue_name="orders")
        def store(batch: list[Message], ctx: DrainContext, folder: str) -> None: ...

        with pytest.raises(TypeError, match="missing a required argument: 'folder'"):
            store()
        with pytest.raises(TypeError, match="unexpected keyword argument 'batch'"):
            store(folder="x", batch=[])
        with pytest.raises(TypeError, match="too many positional arguments"):
            store("x", "y")

        @task.redis_queue(queue_name="orders")
        def nothing() -> None: ...

        with pytest.raises(TypeError, match=r"nothing takes no batch; write nothing\(batch\) or \(batch, ctx\)"):
            nothing()

        @task.redis_queue
        def without_queue(batch: list[Message]) -> None: ...

        with pytest.raises(TypeError, match="queue_name"):
            without_queue()


def test_a_coroutine_function_is_refused_with_what_to_do(queue: RedisMessageQueue, instance: Instance) -> None:
    async def process(batch: list[Message]) -> None: ...

    with pytest.raises(AirflowFailException, match=r"coroutine function, of which a call does no work; write process"):
        run(process, queue, instance)


def test_the_dag_of_the_documentation_archives_for_each_tenant(
    airflow_deployment: Deployment, queue: RedisMessageQueue, embedded_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "documented_decorator.py"
    file.write_text(snippet("airflow-decorator").replace("/data/archive", str(tmp_path)))
    for tenant in ("acme", "initech"):
        with RedisMessageQueue(f"archive-{tenant}", url=embedded_url) as each:
            each.publish(tenant)

    with airflow_deployment.dags([file]) as dags:
        run = dags["archive_orders"].test()

    assert [each["acked"] for each in xcoms(run)["archive"]] == [1, 1]
    stored = {path.parent.name: path.read_text() for path in tmp_path.glob("*/*.jsonl")}
    assert stored == {"acme": "acme\n", "initech": "initech\n"}
