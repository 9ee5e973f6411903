"""Programs of a deployment, each in a session of its own, and the processes that they fork."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.project import ROOT
from tests.support.waiting import wait_until

STOP_SECONDS = 20.0
TAIL_LINES = 25


class Component:
    """One program that writes into a file. A session identifies it with all that it forks, orphans too.

    Args:
        name: of its log file.
        command: what runs.
        environment: of the process.
        folder: where its log is.
        user: that runs it, None for the user of the tests.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        folder: Path,
        user: str | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._log = folder / f"{name}.log"
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def started(self) -> bool:
        """Return whether the program should run."""
        return self._process is not None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program; its log is continued."""
        assert not self.runs, f"{self.name} runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._log.parent if self._user else ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=() if self._user else None,
            )

    def check(self) -> None:
        """Fail with the end of the log when the program has ended by itself."""
        assert self.runs, f"{self.name} has ended:\n{self.tail()}"

    def members(self) -> list[psutil.Process]:
        """Return the processes of the session that are alive."""
        if self._process is None:
            return []
        return [process for pid in psutil.pids() if (process := _alive(pid, self._process.pid))]

    def kill(self) -> None:
        """Kill the program with all its processes, as the end of its container would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            wait_until(self._kill_members, f"no process of {self.name} is left", STOP_SECONDS)
            self._process = None

    def stop(self) -> None:
        """Ask the program to end, and kill what has not."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            self.kill()

    def log(self) -> str:
        """Return what the program has written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the end of that."""
        return "\n".join(self.log().splitlines()[-lines:])

    def _kill_members(self) -> bool:
        members = self.members()
        for process in members:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return not members


def _alive(pid: int, session: int) -> psutil.Process | None:
    """Return a process of a session; None for others, and for zombies, which wait for somebody to read their code."""
    try:
        if os.getsid(pid) != session:
            return None
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None
