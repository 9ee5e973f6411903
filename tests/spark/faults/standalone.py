"""A standalone cluster of one master and two workers on this machine: speculation needs one, local mode has none."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.servers import free_port
from tests.support.waiting import wait_until

START_SECONDS = 120.0
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
        """End the workers first: a worker that ends stops its executors too."""
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
