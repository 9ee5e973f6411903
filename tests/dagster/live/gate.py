"""One queue of the live tests with its gate and its drain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from sluicegate import RedisMessageQueue
from tests.dagster.live.deployment import LiveDagster
from tests.support import handlers
from tests.support.waiting import wait_until

RUN_SECONDS = 120.0


class LiveGate:
    """A gate of a code location, which the test that has it switches on.

    Args:
        name: of the queue and of the asset that drains it.
        folder: where the drain records what it handles.

    Attributes:
        queue: the producer's and observer's end.
    """

    def __init__(self, deployment: LiveDagster, name: str, folder: Path, location: str = "gates") -> None:
        self.deployment = deployment
        self.name = name
        self.folder = folder
        self.location = location
        self.queue = RedisMessageQueue(name, url=deployment.redis_url(location))
        self._identity = ""
        self._held_tick = deployment.home / f"{name}_gate"

    def open(self) -> None:
        """Switch the sensor on."""
        self._identity = self.deployment.start_sensor(self.location, f"{self.name}_gate")

    def close(self) -> None:
        """Switch the sensor off."""
        if self._identity:
            self.deployment.stop_sensor(self._identity)
        self.queue.close()

    def publish(self, count: int, start: int = 0, holds: int | None = None) -> None:
        """Publish numbered messages; a drain holds with the one whose number is `holds`."""
        messages = handlers.messages(self.folder, count, start)
        self.queue.publish_many(message | {"holds": message["n"] == holds} for message in messages)

    def runs(self) -> list[dg.DagsterRun]:
        """Return the runs that the gate requested and their retries, the first first."""
        tags = {"sluicegate/queue": self.name, "dagster/code_location": self.location}
        return list(reversed(self.deployment.instance.get_runs(dg.RunsFilter(tags=tags))))

    def statuses(self) -> list[str]:
        return [run.status.value for run in self.runs()]

    def ticks(self) -> list[Any]:
        """Return the ticks of the sensor, the first first."""
        for state in self.deployment.instance.all_instigator_state():
            origin = state.origin.repository_origin.code_location_origin
            if (origin.location_name, state.instigator_name) == (self.location, f"{self.name}_gate"):
                found = self.deployment.instance.get_ticks(state.instigator_origin_id, state.selector_id)
                return list(reversed(found))
        return []

    def wait_for(self, *statuses: str) -> list[dg.DagsterRun]:
        """Wait until the runs have these statuses, the first first, and return them."""
        self.deployment.wait(
            lambda: self.statuses() == list(statuses), f"runs of {self.name!r} are {statuses}", RUN_SECONDS
        )
        return self.runs()

    def wait_until_held(self) -> int:
        """Wait until a drain is held, and return its process's id."""
        wait_until((self.folder / "held").exists, f"a drain of {self.name!r} is held", RUN_SECONDS)
        return int((self.folder / "held").read_text())

    def let_go(self) -> None:
        """Let the drain that is held, and later ones, continue."""
        (self.folder / "go").touch()

    def hold_ticks(self) -> None:
        """Let each tick hold before it requests a run."""
        self._held_tick.mkdir()

    def wait_for_held_tick(self) -> None:
        wait_until((self._held_tick / "held").exists, f"a tick of {self.name!r} is held", RUN_SECONDS)

    def release_ticks(self) -> None:
        (self._held_tick / "go").touch()

    def metadata(self, run: dg.DagsterRun) -> dict[str, Any]:
        """Return what a run's materialization says."""
        (event,) = self.deployment.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        assert event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    def check_settled(self, count: int) -> None:
        """Check that this number of messages was acked, each of them once, and that nothing is left."""
        depth = self.queue.depth()
        assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)
        assert self.queue.stats().acked == count
