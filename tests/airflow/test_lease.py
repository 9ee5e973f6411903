"""One lease over several tasks: claimed in the first, worked on in others, settled in the last."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider_sluicegate.compat import AirflowFailException, AirflowSkipException
from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.lease import (
    RedisQueueClaimOperator,
    RedisQueueKeepLeaseOperator,
    RedisQueueSettleLeaseOperator,
)
from airflow_provider_sluicegate.triggers.lease import RedisQueueLeaseTrigger
from sluicegate import LeaseHandle, RedisMessageQueue
from sluicegate.errors import LeaseEndedError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.deployment import Deployment, states, xcoms
from tests.airflow.instance import Instance
from tests.airflow.servers import PasswordServer
from tests.airflow.test_triggers import event_of, run, started
from tests.support.snippets import snippet

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parent / "dags" / "leases.py"

Handle = dict[str, str]


class Settling(Instance):
    """A task instance that knows the states of the work."""

    def __init__(self, states: dict[str, str | None]) -> None:
        super().__init__()
        self.states = states

    def get_task_states(self, *, dag_id: str, run_ids: list[str], task_ids: list[str]) -> dict[str, Any]:
        assert (dag_id, run_ids) == ("dag", ["run"])
        return {"run": {key: state for key, state in self.states.items() if key.split("_")[0] in task_ids}}


@pytest.fixture
def claim(queue: RedisMessageQueue, instance: Instance) -> Callable[..., Handle | None]:
    """Run the claim of one task instance on the test's queue."""

    def execute(**arguments: Any) -> Handle | None:
        operator = RedisQueueClaimOperator(task_id="claim", queue_name=queue.name, **arguments)
        return operator.execute({"ti": instance})  # type: ignore[typeddict-item]

    return execute


def settle(handle: Handle | None, **arguments: Any) -> dict[str, int]:
    """Run the settle behind a task `work` that succeeded."""
    operator = RedisQueueSettleLeaseOperator(task_id="settle", lease=handle, work_task_ids=["work"], **arguments)
    return operator.execute({"ti": Settling({"work": "success"})})  # type: ignore[typeddict-item]


def settle_failed(handle: Handle | None, states: dict[str, str | None], **arguments: Any) -> dict[str, int]:
    """Run the settle behind work that did not succeed, and return its XCom."""
    operator = RedisQueueSettleLeaseOperator(task_id="settle", lease=handle, work_task_ids=["work"], **arguments)
    instance = Settling(states)
    with pytest.raises(AirflowFailException, match="not acked, because of work"):
        operator.execute({"ti": instance})  # type: ignore[typeddict-item]
    counts: dict[str, int] = instance.pushed["return_value"]
    return counts


# ---------------------------------------------------------------------- by Airflow itself


@pytest.mark.parametrize(
    ("conf", "ended", "counts"),
    [
        ({}, "success", {"acked": 3, "returned": 0, "buried": 0}),
        ({"nacks": True}, "success", {"acked": 2, "returned": 0, "buried": 0}),
        ({"fails": 1}, "failed", {"acked": 0, "returned": 3, "buried": 0}),
        ({"breaks": True}, "failed", {"acked": 0, "returned": 3, "buried": 0}),
    ],
)
def test_a_batch_is_acked_when_all_work_succeeded_and_returned_otherwise(
    airflow_deployment: Deployment, queue: RedisMessageQueue, conf: dict[str, Any], ended: str, counts: dict[str, int]
) -> None:
    queue.publish_many({"n": n, "note": "CANARY"} for n in range(4))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["leases"].test(run_conf={"queue": queue.name, **conf})

    found = xcoms(run)
    assert (run.state, states(run)["claim"], states(run)["settle"]) == (ended, "success", ended)
    assert found["settle"] == counts
    assert set(found["claim"]) == {"queue", "id", "token", "lease_seconds"}
    depth = queue.depth()
    assert (depth.in_flight, queue.stats().acked, depth.pending + depth.returned + depth.delayed) == (
        0, counts["acked"], 4 - counts["acked"],
    )  # fmt: skip
    assert b"CANARY" not in airflow_deployment.stored()


def test_the_tasks_of_a_run_see_the_same_messages_as_one_delivery(
    airflow_deployment: Deployment, queue: RedisMessageQueue
) -> None:
    queue.publish_many({"n": n} for n in range(3))

    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["leases"].test(run_conf={"queue": queue.name})

    assert (xcoms(run)["read"], xcoms(run)["report"]) == ([0, 1, 2], 1)


def test_an_empty_queue_skips_the_run(airflow_deployment: Deployment, queue: RedisMessageQueue) -> None:
    with airflow_deployment.dags([DAG_FILE]) as dags:
        run = dags["leases"].test(run_conf={"queue": queue.name})

    assert set(states(run).values()) == {"skipped"}


def test_the_documented_dag_books_what_is_good_and_buries_the_rest(
    airflow_deployment: Deployment, embedded_url: str, connect: Connect, tmp_path: Path
) -> None:
    connect(extra={"url": embedded_url})
    queue = RedisMessageQueue("to-book", url=embedded_url)
    queue.publish_many({"amount": amount} for amount in (5, -1, 7))
    file = tmp_path / "documented_lease.py"
    file.write_text(snippet("airflow-lease"))

    with airflow_deployment.dags([file]) as dags:
        run = dags["book_orders"].test()

    assert set(states(run).values()) == {"success"}
    assert xcoms(run)["book"] == 12
    assert xcoms(run)["settle"]["acked"] == 2
    assert (queue.depth().dead, queue.depth().in_flight, queue.depth().ready) == (1, 0, 0)
    queue.close()


# ---------------------------------------------------------------------- claiming


def test_the_xcom_is_a_handle_that_outlives_its_task(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish_many({"n": n, "note": "CANARY"} for n in range(3))

    handle = claim(max_messages=2)

    assert "CANARY" not in json.dumps(handle)
    assert handle is not None
    assert (handle["queue"], handle["id"]) == (queue.name, "dag/task/run/-1")
    assert (queue.depth().in_flight, queue.depth().ready) == (2, 1)


def test_a_retry_of_the_claim_takes_its_own_batch_over_and_no_other(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish_many({"n": n} for n in range(4))
    first = claim(max_messages=2)

    second = claim(max_messages=2)

    assert second != first
    assert queue.depth().in_flight == 2
    with attached_lease(second or {}) as lease:
        assert [message.json()["n"] for message in lease.messages] == [0, 1]


def test_a_cleared_run_whose_batch_is_acked_says_so_and_takes_nothing_else(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish_many({"n": n} for n in range(4))
    handle = claim(max_messages=2)
    settle(handle)

    with pytest.raises(AirflowSkipException, match="2 of its messages are acked"):
        claim(max_messages=2)

    assert settle(handle) == {"acked": 2, "returned": 0, "buried": 0}
    assert (queue.depth().ready, queue.depth().in_flight) == (2, 0)


def test_a_run_whose_batch_was_returned_leases_anew(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})
    settle_failed(claim(), {"work": "failed"})

    assert settle(claim()) == {"acked": 1, "returned": 0, "buried": 0}


def test_an_empty_queue_skips_or_hands_on_nothing(claim: Callable[..., Handle | None]) -> None:
    with pytest.raises(AirflowSkipException, match="nobody has published to this queue yet"):
        claim()

    assert claim(skip_if_empty=False) is None
    with pytest.raises(AirflowSkipException, match="nothing was leased"):
        settle(None)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"max_messages": 0}, "limit"),
        ({"lease_seconds": -1}, "lease_seconds"),
    ],
)
def test_a_claim_that_cannot_work_fails_at_once(
    claim: Callable[..., Handle | None], arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AirflowFailException, match=reason):
        claim(**arguments)


# ---------------------------------------------------------------------- working


def test_a_block_in_which_everything_got_a_verdict_ends_the_lease(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})
    handle = claim() or {}

    with attached_lease(handle) as lease:
        lease.ack()

    with pytest.raises(LeaseEndedError), attached_lease(handle):
        pass
    assert settle(handle) == {"acked": 1, "returned": 0, "buried": 0}


def test_a_handle_that_is_none_says_what_a_handle_is(connect: Connect, embedded_url: str) -> None:
    connect(extra={"url": embedded_url})

    with pytest.raises(AirflowFailException, match=r"lease\.detach\(\)"), attached_lease({"id": "x"}):
        pass


# ---------------------------------------------------------------------- settling


@pytest.mark.parametrize(
    "work",
    [
        {"work_0": "success", "work_1": "failed"},
        {"work": "upstream_failed"},
        {"work": "skipped"},
        {"work": None},
        {},
    ],
)
def test_work_that_did_not_succeed_is_returned_and_fails_the_task(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None], work: dict[str, str | None]
) -> None:
    queue.publish({"n": 1})

    assert settle_failed(claim(), work) == {"acked": 0, "returned": 1, "buried": 0}
    assert queue.depth().ready == 1


@pytest.mark.parametrize(
    "work", [{"work_0": "success", "work_1": "success"}, {"work_0": "success", "work_1": "skipped"}]
)
def test_mapped_work_is_done_when_no_part_of_it_failed(work: dict[str, str | None]) -> None:
    operator = RedisQueueSettleLeaseOperator(task_id="settle", lease={}, work_task_ids=["work"])

    assert operator._unfinished({"ti": Settling(work)}) == []  # type: ignore[typeddict-item]


def test_a_nack_counts_the_delivery_and_a_release_does_not(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})
    counted = []
    for on_failure in ("release", "nack", "nack"):
        handle = claim() or {}
        with attached_lease(handle) as lease:
            counted.append(lease.messages[0].delivery_count)
        settle_failed(handle, {"work": "failed"}, on_failure=on_failure)

    assert counted == [1, 1, 2]


def test_a_lease_that_another_consumer_took_over_fails_the_task_and_acks_nothing(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})
    handle = claim() or {}
    other = queue.claim(1, lease_id=handle["id"], take_over_after_seconds=0)

    with pytest.raises(AirflowFailException, match="the lease of this run is lost"):
        settle(handle)

    assert queue.stats().acked == 0
    other.ack()


def test_an_unknown_verdict_is_refused_before_anything_is_settled(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})

    with pytest.raises(AirflowFailException, match="on_failure"):
        settle(claim(), on_failure="drop")

    assert queue.depth().in_flight == 1


def test_the_work_is_what_stands_directly_before_and_a_teardown_fails_its_run() -> None:
    with DAG("shape", schedule=None):
        claim = RedisQueueClaimOperator(task_id="claim", queue_name="orders")
        settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
        claim >> EmptyOperator(task_id="work") >> settle.as_teardown(setups=claim)
        lonely = RedisQueueSettleLeaseOperator(task_id="lonely", lease={})

    asked: list[list[str]] = []

    def get_task_states(*, task_ids: list[str], **_: Any) -> dict[str, Any]:
        asked.append(task_ids)
        return {"run": {"work": "success"}}

    instance = SimpleNamespace(dag_id="dag", run_id="run", get_task_states=get_task_states)
    assert settle.on_failure_fail_dagrun
    assert settle._unfinished({"ti": instance}) == []  # type: ignore[typeddict-item]
    assert asked == [["work"]]
    with pytest.raises(AirflowFailException, match="work_task_ids"):
        lonely._unfinished({"ti": instance})  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------- keeping


def keeper(handle: Handle, seconds: float = 0.6) -> RedisQueueLeaseTrigger:
    return RedisQueueLeaseTrigger(lease={**handle, "lease_seconds": repr(seconds)})


def test_a_kept_lease_outlives_its_life_and_the_keeper_ends_with_the_settle(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish_many({"n": n} for n in range(3))
    handle = claim(lease_seconds=1.5) or {}

    async def work() -> dict[str, Any]:
        async with started(keeper(handle, seconds=1.5)) as (keeping,):
            began = time.monotonic()
            while time.monotonic() - began < 3:  # two lives of the lease
                await asyncio.sleep(0.05)
                assert not keeping.done()
            assert (await asyncio.to_thread(queue.depth)).expired == 0
            await asyncio.to_thread(settle, handle)
            return await keeping

    event = run(work)
    assert event["status"] == "ended"
    assert "3 messages acked" in event["text"]
    assert (queue.stats().acked, queue.stats().reaped) == (3, 0)


def test_a_keeper_says_that_its_lease_is_lost(queue: RedisMessageQueue, claim: Callable[..., Handle | None]) -> None:
    queue.publish({"n": 1})
    handle = claim() or {}
    other = queue.claim(1, lease_id=handle["id"], take_over_after_seconds=0)

    event = run(lambda: event_of(keeper(handle)))

    assert (event["status"], event["is_permanent"]) == ("error", True)
    assert "another consumer has taken it over" in event["error"]
    operator = RedisQueueKeepLeaseOperator(task_id="keep", lease=handle)
    with pytest.raises(AirflowFailException, match="another consumer has taken it over"):
        operator.execute_complete({}, event)
    other.ack()


def test_a_keeper_does_not_end_before_airflow_knows_of_its_deferral(
    queue: RedisMessageQueue, claim: Callable[..., Handle | None]
) -> None:
    queue.publish({"n": 1})
    handle = claim() or {}
    settle(handle)

    async def work() -> float:
        began = time.monotonic()
        assert (await event_of(RedisQueueLeaseTrigger(lease=handle, min_seconds=0.5)))["status"] == "ended"
        return time.monotonic() - began

    assert run(work) >= 0.5


def test_a_keeper_outlives_an_outage_that_is_shorter_than_the_lease(connect: Connect) -> None:
    server = PasswordServer(PASSWORD, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    connect(host="127.0.0.1", port=server.port, password=PASSWORD)
    try:
        with server.client() as client:
            queue = RedisMessageQueue("orders", client=client)
            queue.publish("a")
            handle = queue.claim(1, lease_seconds=60, retention_seconds=3600).detach().to_dict()

        async def work() -> dict[str, Any]:
            async with started(keeper(handle, seconds=60)) as (keeping,):
                await asyncio.to_thread(server.stop)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.start)
                with server.client() as client:
                    queue = RedisMessageQueue("orders", client=client)
                    queue.attach(LeaseHandle.from_dict(handle), retention_seconds=3600).ack()
                return await keeping

        assert run(work)["status"] == "ended"
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("lease", "arguments", "failure", "says"),
    [
        (None, {}, AirflowSkipException, "nothing was leased"),
        ({"id": "x"}, {}, AirflowFailException, r"lease\.detach\(\)"),
        ({"id": "x"}, {"max_seconds": 0}, AirflowFailException, "max_seconds must be a number above 0"),
    ],
)
def test_a_keeper_that_cannot_work_ends_at_once(
    lease: Any, arguments: dict[str, Any], failure: type[Exception], says: str
) -> None:
    with pytest.raises(failure, match=says):
        RedisQueueKeepLeaseOperator(task_id="keep", lease=lease, **arguments).execute({})


def test_a_keepers_trigger_is_rebuilt_from_plain_values() -> None:
    trigger = RedisQueueLeaseTrigger(lease={"id": "x", "queue": "q"}, min_seconds=6, redis_conn_id="other")
    path, arguments = trigger.serialize()

    assert json.loads(json.dumps(arguments)) == arguments
    assert RedisQueueLeaseTrigger(**arguments).serialize() == (path, arguments)
