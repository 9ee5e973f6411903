"""Drivers of their own, which a test may kill with everything that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.project import ROOT
from tests.support.waiting import wait_until


class DriverProcess:
    """A driver of its own, as a program in text: local mode cannot speculate, and no test may kill the suite's driver.

    It may import the tests. It is a session of processes: whatever it started is found again, and gone after `kill`.
    """

    def __init__(self, program: str, *arguments: str, folder: Path) -> None:
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                },
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
        """Kill the driver, its JVM and its Python workers at once, as when their machine dies."""
        for process in _session(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(timeout=20)
        wait_until(lambda: not _session(self.process.pid), "its processes are gone")


def _session(leader: int) -> Sequence[int]:
    """Return the living processes of a session that we started, by its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The fields follow the name, which may itself contain spaces and parentheses.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
