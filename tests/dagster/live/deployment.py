"""A real Dagster deployment: a server per code location, the daemon and the web server, each a process, and Redis."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg
import yaml

from tests.dagster.live.api import DagsterApi
from tests.dagster.live.settings import LIMITED_QUEUE, TICK_SECONDS
from tests.support.components import Component
from tests.support.project import ROOT
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.waiting import wait_until

LOCATIONS = Path(__file__).with_name("locations")
START_SECONDS = 120.0
EVERY_SECONDS = 0.2

_PROGRAMS = Path(sys.executable).parent
_SETTINGS = {
    "telemetry": {"enabled": False},
    "nux": {"enabled": False},  # no welcome before the page
    "sensors": {"use_threads": True, "num_workers": 4},  # a tick that is held must not hold the others
    "run_retries": {"enabled": True, "max_retries": 0},  # runs that want one have a tag
    "run_monitoring": {"enabled": True, "poll_interval_seconds": 2, "start_timeout_seconds": 60},
    "concurrency": {
        "runs": {
            "max_concurrent_runs": 10,
            "tag_concurrency_limits": [{"key": "sluicegate/queue", "value": LIMITED_QUEUE, "limit": 1}],
        }
    },
}


class LiveDagster(DagsterApi):
    """A deployment with a home of its own; its methods work between `start` and `remove`.

    Args:
        locations: the file of each code location, by the location's name. Each has a database of Redis of its own.
        reloadable: with servers that can load their code again, which take longer to start.

    Attributes:
        redis: keeps its data on disk, and may be stopped and started.
        instance: what the daemon and the runs have recorded.
    """

    def __init__(self, locations: Mapping[str, str], reloadable: bool = False) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="sluicegate-live-"))
        self.port = free_port()
        super().__init__(f"http://127.0.0.1:{self.port}")
        self.redis = RedisServer(PROGRAMS[0], "--appendonly", "yes", "--appendfsync", "always", port=free_port())
        self.locations = dict(locations)
        self._ports = {name: free_port() for name in locations}
        server = ("code-server", "start") if reloadable else ("api", "grpc")
        self.components = {name: self._code_server(name, server) for name in locations}
        for program, options in {"daemon": ["run"], "webserver": ["-h", "127.0.0.1", "-p", str(self.port)]}.items():
            command = [_PROGRAMS / f"dagster-{program}", *options, "-w", self.workspace]
            self.components[program] = Component(program, command, self._environment(), self.home)

    @property
    def workspace(self) -> Path:
        """Return the file that says where the code locations are."""
        return self.home / "workspace.yaml"

    def redis_url(self, location: str) -> str:
        """Return the database of a code location."""
        return self.redis.url.removesuffix("0") + str(list(self.locations).index(location))

    def start(self, *names: str) -> None:
        """Start components, by default all with Redis, and wait until the web server knows each code location."""
        if not names:
            self._configure()
            self.redis.start()
            self.instance = dg.DagsterInstance.from_config(str(self.home))
        for name in names or tuple(self.components):
            self.components[name].start()
        if self.components["webserver"].runs:
            self.wait(self.answers, "the web server answers")
            self.wait(lambda: self.loaded() == set(self.locations), "every code location is loaded")

    def kill(self, *names: str) -> None:
        """Kill components with all their processes: with a code server, its runs die too."""
        for name in names:
            self.components[name].kill()

    def remove(self) -> None:
        """Kill everything, which takes less time than a good order, and delete the home."""
        self.kill(*self.components)
        self.client.close()
        if hasattr(self, "instance"):
            self.instance.dispose()
        self.redis.remove()
        shutil.rmtree(self.home)

    def run(self, *arguments: str | Path) -> str:
        """Run a command of Dagster's command line and return its output."""
        done = subprocess.run(
            [_PROGRAMS / "dagster", *arguments],
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def wait(self, condition: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for a condition, as long as every component that was started is alive."""

        def met() -> object:
            for component in self.components.values():
                if component.started:
                    component.check()
            return condition()

        wait_until(met, what, seconds, EVERY_SECONDS)

    def tails(self) -> dict[str, str]:
        """Return the end of each component's log."""
        return {name: component.tail() for name, component in self.components.items()}

    def _configure(self) -> None:
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": name}}
            for name, port in self._ports.items()
        ]
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(_SETTINGS))
        self.workspace.write_text(yaml.safe_dump({"load_from": servers}))

    def _code_server(self, name: str, server: Sequence[str]) -> Component:
        command = [
            *(_PROGRAMS / "dagster", *server, "-h", "127.0.0.1", "-p", str(self._ports[name])),
            *("--location-name", name, "-d", ROOT, "-f", LOCATIONS / self.locations[name]),
        ]
        return Component(name, command, self._environment() | {"LIVE_REDIS_URL": self.redis_url(name)}, self.home)

    def _environment(self) -> dict[str, str]:
        """Return the environment of every process: none of the settings that this process has for its own Dagster."""
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DAGSTER", "SLUICEGATE"))},
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": str(TICK_SECONDS),
            "LIVE_DEAD_URL": "redis://127.0.0.1:1/0",
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "127.0.0.1,localhost",
        }
