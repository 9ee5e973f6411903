"""A real Airflow deployment: scheduler, DAG processor, API server and triggerer, each a process, and a Redis server."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from cryptography.fernet import Fernet

from tests.airflow.live.api import EVERY_SECONDS, AirflowApi
from tests.support.components import Component
from tests.support.project import ROOT
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.waiting import wait_until

DAGS = Path(__file__).with_name("dags")
START_SECONDS = 120.0
# After this time without a heartbeat, Airflow takes a task for dead.
TASK_TIMEOUT_SECONDS = 15

_JOBS = {"scheduler": "SchedulerJob", "dag-processor": "DagProcessorJob", "triggerer": "TriggererJob"}
_AIRFLOW = (sys.executable, "-m", "airflow")


class LiveDeployment(AirflowApi):
    """A deployment with a home of its own; its API's methods work between `start` and `remove`.

    Args:
        database: the URL of an empty database, None for SQLite in the home.
        schedulers: how many; SQLite bears one only. The second is named `scheduler-2`.

    Attributes:
        redis: keeps its data on disk, and may be stopped and started. It is the connection `sluicegate_default`.
    """

    def __init__(self, database: str | None = None, schedulers: int = 1) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="sluicegate-live-"))
        self.port = free_port()
        super().__init__(f"http://127.0.0.1:{self.port}")
        self._environment = self._configured(database or f"sqlite:///{self.home}/airflow.db")
        self._jobs: dict[str, int] = dict.fromkeys(_JOBS.values(), 0)
        names = ["api-server", "dag-processor", "triggerer", "scheduler"]
        names += [f"scheduler-{number}" for number in range(2, schedulers + 1)]
        self.components = {name: self._component(name) for name in names}
        self.redis = RedisServer(PROGRAMS[0], "--appendonly", "yes", "--appendfsync", "always", port=free_port())

    def start(self, *names: str) -> None:
        """Start components, by default all with their database and Redis, and wait until they work."""
        if not names:
            self.redis.start()
            self.run("db", "migrate")
        names = names or tuple(self.components)
        for name in names:
            self.components[name].start()
        self._wait(self.answers, "the API server answers")
        for name in names:
            if kind := self._kind(name):
                self._jobs[kind] += 1
        self._wait(self._all_reported, f"{', '.join(names)} report themselves")

    def define_connection(self) -> None:
        """Store the connection to Redis."""
        self.add_connection("sluicegate_default", "sluicegate", host="127.0.0.1", port=self.redis.port)

    def kill(self, name: str) -> None:
        """Kill a component with all its processes: with a scheduler, its tasks die too."""
        self.components[name].kill()

    def kill_worker(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> None:
        """Kill the process of a running task and the worker that supervises it."""
        worker = self._task(dag_id, run_id, task_id, map_index).parent()
        assert worker is not None
        assert any(worker in component.members() for component in self.components.values()), f"{worker} is not ours"
        for process in (worker, *worker.children(recursive=True)):
            process.kill()

    def component_of(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
        """Return the name of the scheduler that runs a task."""
        task = self._task(dag_id, run_id, task_id, map_index)
        return next(name for name, component in self.components.items() if task in component.members())

    def stop(self, name: str) -> None:
        """Stop a component in good order."""
        self.components[name].stop()

    def remove(self) -> None:
        """Kill everything, which takes less time than a good order, and delete the home."""
        for component in self.components.values():
            component.kill()
        self.client.close()
        self.redis.remove()
        shutil.rmtree(self.home)

    def run(self, *arguments: str) -> str:
        """Run a command of Airflow's command line and return its output."""
        done = subprocess.run(
            [*_AIRFLOW, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def ready(self, dag_id: str) -> None:
        """Wait until a DAG has been parsed."""
        self._wait(lambda: self.knows(dag_id), f"{dag_id!r} is parsed")

    def tails(self) -> dict[str, str]:
        """Return the end of each component's log."""
        return {name: component.tail() for name, component in self.components.items()}

    def _task(self, *which: Any) -> psutil.Process:
        return psutil.Process(self.instance(*which)["pid"])

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        def met() -> object:
            for component in self.components.values():
                if component.started:
                    component.check()
            return condition()

        wait_until(met, what, START_SECONDS, EVERY_SECONDS)

    def _all_reported(self) -> bool:
        return all(len(self.jobs(kind)) >= count for kind, count in self._jobs.items())

    def _kind(self, name: str) -> str | None:
        return next((kind for start, kind in _JOBS.items() if name.startswith(start)), None)

    def _component(self, name: str) -> Component:
        program = name.partition("-2")[0]
        return Component(name, [*_AIRFLOW, program], self._environment | _ports(), self.home)

    def _configured(self, database: str) -> dict[str, str]:
        """Return the environment of every process: none of the settings that this process has for its own Airflow."""
        settings: dict[str, dict[str, Any]] = {
            "core": {
                "load_examples": False,
                "dags_folder": DAGS,
                "dags_are_paused_at_creation": False,
                "executor": "LocalExecutor",
                "parallelism": 2,
                "fernet_key": Fernet.generate_key().decode(),
                "simple_auth_manager_all_admins": True,
                "execution_api_server_url": f"http://127.0.0.1:{self.port}/execution/",
            },
            "database": {"sql_alchemy_conn": database},
            "api": {
                "host": "127.0.0.1",
                "port": self.port,
                "base_url": f"http://127.0.0.1:{self.port}",
                "workers": 1,
                "secret_key": secrets.token_hex(32),
            },
            "api_auth": {"jwt_secret": secrets.token_hex(32)},
            "scheduler": {
                "enable_health_check": False,
                "scheduler_idle_sleep_time": 0.25,
                "job_heartbeat_sec": 2,
                "scheduler_health_check_threshold": 10,
                "orphaned_tasks_check_interval": 5,
                "task_instance_heartbeat_timeout": TASK_TIMEOUT_SECONDS,
                "task_instance_heartbeat_timeout_detection_interval": 2,
            },
            # A worker may notice the end of its task as late as this.
            "workers": {"min_heartbeat_interval": 1},
            "triggerer": {"capacity": 100, "job_heartbeat_sec": 2, "triggerer_health_check_threshold": 10},
            "dag_processor": {"refresh_interval": 2, "bundle_refresh_check_interval": 1, "parsing_processes": 1},
            "usage_data_collection": {"enabled": False},
        }
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "SLUICEGATE"))},
            "AIRFLOW_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "127.0.0.1,localhost",
            **{
                f"AIRFLOW__{section}__{option}".upper(): str(value)
                for section, options in settings.items()
                for option, value in options.items()
            },
        }


def _ports() -> dict[str, str]:
    """Return ports for the servers of logs, of which each component may have one."""
    return {f"AIRFLOW__LOGGING__{which}_LOG_SERVER_PORT": str(free_port()) for which in ("WORKER", "TRIGGER")}
