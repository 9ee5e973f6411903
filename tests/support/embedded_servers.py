"""Clients of embedded servers in other processes, and what is known of processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sluicegate.embedded import keeper
from sluicegate.embedded.folder import ServerRecord, open_data_folder, read_record
from tests.support.waiting import DEADLINE_SECONDS, wait_until

USER_PROGRAM = """
import json, signal, sys
from pathlib import Path
from sluicegate.embedded import connect, ensure_server
# A shell's background jobs inherit an ignored Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = connect(sys.argv[1], decode_responses=True)
for line in sys.stdin:
    command = json.loads(line)
    reply = ensure_server(Path(command[1])).pid if command[0] == "ensure" else client.execute_command(*command)
    print(json.dumps(reply), flush=True)
"""


class User:
    """Another process with a client of an embedded server."""

    def __init__(self, url: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER_PROGRAM, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,
        )

    def send(self, *command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, *command: str) -> Any:
        self.send(*command)
        return self.receive()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE_SECONDS)


def runs(pid: int) -> bool:
    """Return whether a process has a living thread. One that ended and was not yet reaped has none."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for thread in threads:
        status = Path(f"/proc/{pid}/task/{thread}/stat")
        try:
            if status.read_text().rpartition(")")[2].split()[0] not in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def record_of(folder: Path) -> ServerRecord | None:
    with open_data_folder(folder, make=False) as opened:
        return read_record(opened)


def keeper_pid(folder: Path) -> int:
    record = record_of(folder)
    assert record is not None
    return int(Path(record.socket_path).with_name(keeper.KEEPER_LOCK).read_text())


def processes_of(folder: Path) -> list[str]:
    """Return the processes whose working folder is this data folder: its server and its watcher."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd").removesuffix(" (deleted)") == str(folder):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not runs(pid), f"process {pid} ends")


def aof_file(folder: Path) -> Path:
    """Return the append-only file that the server writes to, in the layout of Redis 6 or of Redis 7."""
    return next(iter((*folder.glob("appendonlydir/*.incr.aof"), *folder.glob("appendonly.aof"))))


def fake_program(path: Path, action: str, version: str = "7.0.0") -> Path:
    """Write a program that reports the version of a Redis server and does something else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "Redis server v={version} sha=0"; exit; fi\n{action}\n'
    )
    path.chmod(0o755)
    return path
