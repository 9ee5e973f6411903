"""A standalone cluster of one master and two workers on this machine: speculation needs one, local mode has none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from tests.conformance.waiting import wait_until
from tests.conftest import free_port

START_SECONDS = 60.0
# Spark copies a task only onto a host that does not run it already: these two are one machine, and two hosts.
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")


class StandaloneCluster:
    """Starts the processes when entered, and ends exactly these when left.

    Attributes:
        url: of the master, for `SparkSession.builder.master`.
        folder: logs and work of its processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._page = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._home = Path(pyspark.__file__).parent

    def __enter__(self) -> StandaloneCluster:
        try:
            port = self.url.rpartition(":")[2]
            where = ("--host", "127.0.0.1", "--port", port, "--webui-port", str(self._page))
            self._start("org.apache.spark.deploy.master.Master", *where)
            wait_until(lambda: "workers" in self._told(), "the master answers", START_SECONDS)
            for number, host in enumerate(WORKER_HOSTS):
                words = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0")
                work = ("--work-dir", str(self.folder / f"work-{number}"))
                self._start("org.apache.spark.deploy.worker.Worker", *words, *work, self.url)
            wait_until(lambda: '"aliveworkers" : 2' in self._told(), "both workers are there", START_SECONDS)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Workers first: a worker that is told to end takes its executors along."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            process.wait(timeout=START_SECONDS)
        self._processes.clear()

    def _start(self, *words: str) -> None:
        with (self.folder / f"log-{len(self._processes)}").open("wb") as log:
            process = subprocess.Popen(
                [self._home / "bin" / "spark-class", *words],
                env={**os.environ, "SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)

    def _told(self) -> str:
        for process, log in zip(self._processes, sorted(self.folder.glob("log-*")), strict=True):
            assert process.poll() is None, log.read_text(errors="replace")
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as page:
            return str(page.read().decode())
        return ""


class Driver:
    """A driver of its own, as a program in text: local mode cannot speculate, and no test may kill the suite's driver.

    It is a session of processes: whatever it started is found again, and gone when `wait_gone` returns.
    """

    def __init__(self, program: str, *arguments: str, folder: Path) -> None:
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def check_alive(self) -> None:
        assert self.process.poll() is None, self.log()

    def finish(self, seconds: float) -> None:
        """Wait for its end, which must be a success."""
        assert self.process.wait(timeout=seconds) == 0, self.log()

    def kill(self) -> None:
        """The driver, its JVM and its Python workers die at once, as with their machine."""
        for process in _session(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(timeout=20)
        wait_until(lambda: not _session(self.process.pid), "its processes are gone")


def _session(leader: int) -> Sequence[int]:
    """The living processes of a session that we started, by its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The fields follow the name, which may itself contain spaces and parentheses.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
