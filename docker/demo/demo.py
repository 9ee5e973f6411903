"""Send a year of flights through a running deployment and compare the result; exit code 0 if everything is right.

It empties the queue and the folder, starts the pipeline by the orchestrator's API, waits for it, and compares the
Parquet files of Spark's executors with what pandas computes from the CSV file. The service `demo` of compose.yaml
runs it.

Usage: demo.py [airflow|dagster]
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import redis

from example_dags.demo.data import find_csv
from example_dags.demo.expected import compute_expected
from example_dags.demo.verify import verify
from sluicegate import RedisMessageQueue

QUEUE = "flights"
MONTH_AGAIN = 1
SECONDS = 600.0
EVERY_SECONDS = 1.0
# The first task makes the API server build its routes, which takes long on a busy machine.
REQUEST_SECONDS = 120.0
PASSWORD = os.environ["REDIS_PASSWORD"]


_LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_RUNS = """{ runsOrError(limit: 10) { ... on Runs { results {
    runId status creationTime startTime endTime } } } }"""
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")


class DemoError(Exception):
    """The pipeline failed, or did not end in time."""


def run_in_airflow() -> None:
    """Run the DAG once and print its tasks as they end."""
    client = httpx.Client(base_url=os.environ["AIRFLOW_URL"], timeout=REQUEST_SECONDS)
    login = {"username": "admin", "password": os.environ["AIRFLOW_ADMIN_PASSWORD"]}
    token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    dag = "/api/v2/dags/flights"
    wait_until(lambda: client.patch(dag, json={"is_paused": False}).is_success, "the DAG processor has read the DAG")
    run = client.post(f"{dag}/dagRuns", json={"logical_date": None}).raise_for_status().json()["dag_run_id"]
    shown: set[str] = set()

    def ended() -> str | None:
        state = client.get(f"{dag}/dagRuns/{run}").raise_for_status().json()["state"]
        tasks = client.get(f"{dag}/dagRuns/{run}/taskInstances").raise_for_status().json()["task_instances"]
        for task in tasks:
            if task["end_date"] and task["task_id"] not in shown:
                shown.add(task["task_id"])
                print(f"  {task['task_id']:<20} {task['state']:<10} {task['duration'] or 0:6.1f} s", flush=True)
        return state if state in ("success", "failed") else None

    if (state := wait_until(ended, "the DAG's run has ended")) != "success":
        raise DemoError(f"the run {run!r} of the DAG 'flights' is {state}; see its page, or the scheduler's log")


def run_in_dagster() -> None:
    """Materialize what publishes, and wait for the run that the sensor requests."""
    client = httpx.Client(base_url=os.environ["DAGSTER_URL"], timeout=REQUEST_SECONDS)
    since = time.time()

    def ask(query: str, **variables: Any) -> dict[str, Any]:
        answer = client.post("/graphql", json={"query": query, "variables": variables}).raise_for_status().json()
        if answer.get("errors"):
            raise DemoError(f"Dagster refuses a query: {answer['errors'][0]['message']}")
        return dict(answer["data"])

    selector = {
        "repositoryLocationName": "flights",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": ["published_year"]}, {"path": ["published_month_again"]}],
    }
    launched = ask(_LAUNCH, params={"selector": selector, "mode": "default"})["launchPipelineExecution"]
    if "run" not in launched:
        raise DemoError(f"Dagster starts no run: {launched}")
    names = {launched["run"]["runId"]: "published_year, published_month_again"}
    shown: set[str] = set()

    def ended() -> str | None:
        runs = [run for run in ask(_RUNS)["runsOrError"]["results"] if (run["creationTime"] or 0) >= since]
        for run in runs:
            if run["status"] in _ENDED and run["endTime"] and run["runId"] not in shown:
                shown.add(run["runId"])
                name = names.get(run["runId"], "flights, average_delays")
                print(f"  {name:<40} {run['status']:<10} {run['endTime'] - run['startTime']:6.1f} s", flush=True)
        states = {run["runId"] in names: run["status"] for run in runs if run["status"] in _ENDED}
        return next((state for state in states.values() if state != "SUCCESS"), states.get(False))

    if (state := wait_until(ended, "the sensor's run has ended")) != "SUCCESS":
        raise DemoError(f"a run is {state}; see Dagster's page, or the log of its code location")


# What runs the pipeline, the number of its database in Redis, and the folder that it writes to.
ORCHESTRATORS: dict[str, tuple[Callable[[], None], int, str]] = {
    "airflow": (run_in_airflow, 0, "airflow"),
    "dagster": (run_in_dagster, 1, "dagster"),
}


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true answer.

    Raises:
        DemoError: there is none in time.
    """
    deadline = time.monotonic() + SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise DemoError(f"after {SECONDS:g} s it is not true that {what}")
        time.sleep(EVERY_SECONDS)
    return answer


def empty(client: redis.Redis, output: Path) -> None:
    """Delete the queue's keys, deduplication markers included, and the files of an earlier run."""
    keys: Iterator[str] = client.scan_iter(f"sluicegate:{{{QUEUE}}}:*", count=5000)
    while some := list(islice(keys, 5000)):
        client.unlink(*some)
    for folder in ("flights", "delays"):
        shutil.rmtree(output / folder, ignore_errors=True)


def compare(url: str, output: Path, seconds: float) -> list[str]:
    """Compare Redis's totals and the files with the CSV file; print the figures and return what is wrong."""
    expected = compute_expected(find_csv())
    queue = RedisMessageQueue(QUEUE, url=f"{url}?password_env=REDIS_PASSWORD")
    findings = verify(
        expected,
        asdict(queue.stats()),
        flights=output / "flights",
        delays=output / "delays",
        ready_left=queue.depth().ready,
        again=expected.months[MONTH_AGAIN],
        crash=False,
    )
    files = sum(1 for _ in (output / "flights").rglob("*.parquet"))
    print(
        f"{findings.published:,} published, {findings.duplicates_refused:,} duplicates refused, "
        f"{findings.acked:,} acked, {findings.drained:,} rows in {files} Parquet files; {seconds:.0f} s"
    )
    return list(findings.problems)


def main(name: str = "airflow") -> int:
    """Run and compare."""
    run, database, folder = ORCHESTRATORS[name]
    url = f"{os.environ['REDIS_URL']}/{database}"
    output = Path("/data", folder)
    client = redis.Redis.from_url(url, password=PASSWORD, decode_responses=True)
    print(f"the flights in {name}:", flush=True)
    empty(client, output)
    started = time.monotonic()
    try:
        run()
    except DemoError as error:
        print(error, file=sys.stderr)
        return 1
    problems = compare(url, output, time.monotonic() - started)
    print(*(f"wrong: {problem}" for problem in problems), sep="\n", end="\n" if problems else "", file=sys.stderr)
    if not problems:
        print("every cell is as pandas reads it, and nothing is left in the queue")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
