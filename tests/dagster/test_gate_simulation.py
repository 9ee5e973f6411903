"""Many ticks of a gate whose daemon, runs and workers die at random: no run is started twice, nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor
from sluicegate import RedisMessageQueue
from sluicegate.errors import LeaseLostError
from sluicegate.lease import Lease
from tests.dagster.helpers import submit, succeed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.dagster

UNFINISHED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTED]
OPENS_AT = 3


@dg.asset
def drained() -> None: ...


def expire(lease: Lease) -> None:
    """Let a lease expire now, if no other run has taken its messages yet."""
    with suppress(LeaseLostError):
        lease.extend(0.001)


@dataclass(repr=False)
class Simulation:
    """A daemon that evaluates a gate and submits runs as Dagster's does, and the runs that it starts.

    A tick persists its requests before it submits them; a daemon that died in between submits them again, and skips
    those whose run key has a run. Runs wait, start, claim, ack, and die between any two of these steps.
    """

    seed: int
    queue: RedisMessageQueue
    resource: RedisQueueResource
    instance: dg.DagsterInstance
    max_in_flight: int = 1
    persisted: list[dg.RunRequest] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    orphans: list[Lease] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)
    acked: Counter[int] = field(default_factory=Counter)
    published: int = 0
    empty_handed: int = 0
    most_unfinished: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.gate = build_queue_depth_sensor(
            name="gate",
            target=drained,
            min_ready=OPENS_AT,
            max_in_flight=self.max_in_flight,
            attempt_delay_seconds=0,
            failure_delay_seconds=0,
        )

    def tick(self, *, calm: bool = False) -> None:
        """Publish, evaluate, submit, and let runs advance; unless it is calm, things die in between."""
        if not calm:
            count = self.random.randrange(4)
            self.queue.publish_many({"n": self.published + number} for number in range(count))
            self.published += count
        dies_at = None if calm else self.random.choice([None, None, None, "evaluated", "persisted", "submitted"])
        if not self.persisted:
            requests = self._evaluate()
            if dies_at == "evaluated":
                return
            self.persisted = requests
        if dies_at == "persisted":
            return
        for request in self.persisted:
            self._submit(request)
        if dies_at != "submitted":  # else the next tick submits them again
            self.persisted = []
        for run in self._unfinished():
            self._advance(run, calm)
        while self.orphans and (calm or self.random.random() < 0.3):
            expire(self.orphans.pop())

    def _evaluate(self) -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=self.instance, resources={"queue": self.resource})
        return list(self.gate.evaluate_tick(context).run_requests or ())

    def _submit(self, request: dg.RunRequest) -> None:
        assert request.run_key is not None
        same = dg.RunsFilter(tags={"dagster/run_key": request.run_key})
        if self.instance.get_runs_count(same) == 0:
            submit(self.instance, request, **{"dagster/run_key": request.run_key})
            self.keys[request.run_key] += 1
        self.most_unfinished = max(self.most_unfinished, len(self._unfinished()))

    def _unfinished(self) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)))

    def _advance(self, run: dg.DagsterRun, calm: bool) -> None:
        """Let a run wait, die, claim, or ack what it has claimed."""
        step = "work" if calm else self.random.choice(["wait", "work", "work", "work", "freeze", "die"])
        lease = self.leases.get(run.run_id)
        if step == "die":
            if lease is not None:
                self.orphans.append(self.leases.pop(run.run_id))
            self.instance.report_run_failed(run)
        elif step == "freeze" and lease is not None:
            expire(lease)  # it has missed its heartbeats, and continues all the same
        elif step == "work" and lease is None:
            lease = self.queue.claim(self.random.choice([2, 5, 50]))
            if lease:
                self.leases[run.run_id] = lease
            else:
                self.empty_handed += 1
                succeed(self.instance, run)
        elif step == "work" and lease is not None:
            numbers = [message.json()["n"] for message in lease.messages]
            del self.leases[run.run_id]
            try:
                lease.ack(lease.messages)
            except LeaseLostError:
                self.instance.report_run_failed(run)
            else:
                self.acked.update(numbers)
                succeed(self.instance, run)

    def finish(self) -> None:
        """Let everything that was begun end, without further accidents."""

        def is_done() -> bool:
            self.tick(calm=True)
            depth = self.queue.depth()
            return depth.ready < OPENS_AT and not depth.in_flight and not self._unfinished()

        wait_until(is_done, "the backlog is drained", seconds=60)


@pytest.fixture
def quiet(resource: RedisQueueResource) -> Iterator[RedisMessageQueue]:
    """Yield a queue whose leases have no heartbeats, and whose messages never die."""
    with resource.get_queue(heartbeat_interval_seconds=0, max_delivery_count=None) as queue:
        yield queue


@pytest.mark.parametrize(
    ("ticks", "max_in_flight"),
    [
        (60, 1),
        pytest.param(1000, 1, marks=[pytest.mark.full, pytest.mark.timeout(600)]),
        pytest.param(1000, 3, marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
)
def test_no_run_is_started_twice_and_no_message_is_lost(
    quiet: RedisMessageQueue,
    resource: RedisQueueResource,
    instance: dg.DagsterInstance,
    ticks: int,
    max_in_flight: int,
) -> None:
    simulation = Simulation(7, quiet, resource, instance, max_in_flight)
    for _ in range(ticks):
        simulation.tick()
    simulation.finish()
    assert len(simulation.keys) > ticks / 10
    assert set(simulation.keys.values()) == {1}
    assert simulation.most_unfinished == max_in_flight
    if max_in_flight == 1:
        assert simulation.empty_handed == 0
    assert set(simulation.acked.values()) == {1}
    assert len(simulation.acked) == simulation.published - quiet.depth().ready
