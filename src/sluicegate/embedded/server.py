"""This module starts or joins the embedded server of a data folder."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, get_args

from sluicegate.embedded import folder as on_disk
from sluicegate.embedded import keeper, safety
from sluicegate.embedded.binary import ServerBinary, locate_server
from sluicegate.errors import ConfigurationError, EmbeddedServerError

__all__ = ["EmbeddedServer", "Fsync", "check_options", "ensure_server", "find_running", "stop_server"]

Fsync = Literal["everysec", "always"]

_POLL_SECONDS = 0.005
_MAX_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """This is a running server. It may end at any later moment, after an idle time or a crash."""

    socket_path: Path
    folder: Path
    pid: int
    version: str


def check_options(fsync: str, idle_seconds: float) -> None:
    """Refuse invalid options.

    Raises:
        ConfigurationError: an option is invalid; the text names it and its valid values.
    """
    if fsync not in get_args(Fsync):
        raise ConfigurationError(f"fsync={fsync!r}: use 'everysec' or 'always'.")
    if not (math.isfinite(idle_seconds) and idle_seconds > 0):
        raise ConfigurationError(f"idle_seconds={idle_seconds!r}: use a number of seconds above 0.")


def ensure_server(
    folder: Path,
    *,
    fsync: Fsync = "everysec",
    idle_seconds: float = 60.0,
    server: Path | None = None,
    start_timeout_seconds: float = 10.0,
) -> EmbeddedServer:
    """Join the running server of a data folder, or start one; return once it answers.

    Any number of processes and threads may call this at once: there is never more than one server on a folder. The
    server belongs to none of them. It continues to run when its starter ends, and its watcher stops it once nobody has
    been connected for `idle_seconds`. A call also replaces a watcher that was killed.

    Args:
        folder: the data folder, created if missing and closed to other users; of any length and spelling.
        fsync: "everysec" may lose the last second or two when the machine fails, "always" loses nothing that was
            acknowledged. A joiner's "always" makes the running server stricter; "everysec" never relaxes it.
        idle_seconds: used if this call starts the server or its watcher.
        server: the program, see `find_server`; used if this call starts the server.
        start_timeout_seconds: how long to wait for an answer.

    Raises:
        UnsafeFolderError: another user owns the folder, can write to it, or can replace it.
        EmbeddedServerNotFoundError: no server program was found.
        EmbeddedServerError: the folder cannot be used, or the server did not start; the text has its last log lines.
        ConfigurationError: an option is invalid.
    """
    check_options(fsync, idle_seconds)
    deadline = time.monotonic() + start_timeout_seconds
    with on_disk.open_data_folder(folder) as opened:
        with on_disk.exclusive(opened, deadline):
            record = _join_or_start(opened, fsync, idle_seconds, server, deadline)
            socket_path = Path(record.socket_path)
            if not on_disk.is_locked(socket_path.with_name(keeper.KEEPER_LOCK)):
                _run_keeper(opened, socket_path, idle_seconds)
        if fsync == "always":
            _set_always(record, opened)
        return EmbeddedServer(socket_path, opened.path, record.pid, record.version)


def find_running(folder: Path, *, timeout_seconds: float = 10.0) -> EmbeddedServer | None:
    """Return the running server of a folder, None if none runs; nothing is started.

    Raises:
        UnsafeFolderError: another user owns the folder, can write to it, or can replace it.
        EmbeddedServerError: the server does not answer in time.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        opened = on_disk.open_data_folder(folder, make=False)
    except FileNotFoundError:
        return None
    with opened:
        if keeper.SERVER_LOCK not in os.listdir(opened.descriptor):
            return None
        with on_disk.exclusive(opened, deadline):
            if not on_disk.is_locked(keeper.SERVER_LOCK, opened):
                return None
            record = _reachable_record(opened)
            reply = None if record is None else _ask(record, "PING", deadline)
            if record is None or reply != b"+PONG":
                raise _no_answer(record, reply, opened)
            return EmbeddedServer(Path(record.socket_path), opened.path, record.pid, record.version)


def stop_server(folder: Path, *, timeout_seconds: float = 10.0) -> bool:
    """Save and stop the server of a folder now, even if it is in use; return False if none was running.

    Connected users lose their connections; their next command starts the server again.

    Raises:
        UnsafeFolderError: another user owns the folder, can write to it, or can replace it.
        EmbeddedServerError: the server did not end in time.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        opened = on_disk.open_data_folder(folder, make=False)
    except FileNotFoundError:
        return False
    with opened:
        return _stop(opened, deadline)


def _stop(folder: on_disk.DataFolder, deadline: float) -> bool:
    if keeper.SERVER_LOCK not in os.listdir(folder.descriptor):
        return False
    with on_disk.exclusive(folder, deadline):
        if not on_disk.is_locked(keeper.SERVER_LOCK, folder):
            return False
        while on_disk.is_locked(keeper.SERVER_LOCK, folder):
            record = _reachable_record(folder)
            if record is not None:
                _ask(record, "SHUTDOWN", deadline)
            if time.monotonic() >= deadline:
                raise EmbeddedServerError(f"the server of {folder.path} did not stop; see {folder.path / keeper.LOG}.")
            time.sleep(_POLL_SECONDS)
    return True


def _join_or_start(
    folder: on_disk.DataFolder, fsync: Fsync, idle_seconds: float, server: Path | None, deadline: float
) -> on_disk.ServerRecord:
    """Join or start a server and return its record once it answers; the caller holds start.lock."""
    started: ServerBinary | None = None
    log_start = on_disk.log_size(folder)
    reply: bytes | None = None
    pause = _POLL_SECONDS
    while True:
        if not on_disk.is_locked(keeper.SERVER_LOCK, folder):
            if started is not None:
                raise _failed_start(started, folder, log_start)
            started = locate_server(server)
            _start(started, folder, fsync, idle_seconds)
        record = _reachable_record(folder)
        if record is not None:
            reply = _ask(record, "PING", deadline)
            if reply == b"+PONG":
                return record
        if time.monotonic() >= deadline:
            raise _no_answer(record, reply, folder)
        time.sleep(pause)
        # A long append-only file takes a while to load.
        pause = min(2 * pause, _MAX_POLL_SECONDS)


def _start(binary: ServerBinary, folder: on_disk.DataFolder, fsync: Fsync, idle_seconds: float) -> None:
    on_disk.check_files(folder)  # before anything is believed of what they hold
    if binary.release < (7, 0) and on_disk.is_new_layout(folder):
        raise EmbeddedServerError(
            f"the data in {folder.path} was written by Redis 7 or newer, which {binary} cannot read; "
            "use a newer server or another folder."
        )
    socket_path = on_disk.make_socket_path()
    try:
        _run_keeper(folder, socket_path, idle_seconds, str(binary.path), binary.version, fsync)
    except EmbeddedServerError:
        for left in socket_path.parent.iterdir():
            left.unlink()
        socket_path.parent.rmdir()
        raise


def _run_keeper(folder: on_disk.DataFolder, socket_path: Path, idle_seconds: float, *start: str) -> None:
    """Start the watcher, and with `start` (program, version, fsync) the server; return once both processes exist."""
    # as_file: the package may be imported from a zip file, as Spark's --py-files does.
    with as_file(files("sluicegate.embedded") / "keeper.py") as script:
        command = [
            sys.executable,
            "-I",
            "-S",
            str(script),
            str(folder.descriptor),
            str(socket_path),
            str(idle_seconds),
            *start,
        ]
        try:
            launched = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(folder.descriptor,),
                # Ctrl-C in the starter's terminal must reach neither the watcher nor the server.
                start_new_session=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbeddedServerError(f"the watcher of {folder.path} cannot be started: {error}.") from error
    if launched.returncode or launched.stderr:
        reason = launched.stderr.decode(errors="replace").strip()
        raise EmbeddedServerError(f"the server of {folder.path} cannot be started: {reason or launched.returncode}")


def _ask(record: on_disk.ServerRecord, command: str, deadline: float) -> bytes | None:
    """Return the server's reply; None if it cannot be reached."""
    try:
        link = keeper.Link(record.socket_path, max(0.05, deadline - time.monotonic()))
    except OSError:
        return None
    try:
        return link.ask(command)
    except OSError:
        return None
    finally:
        link.close()


def _set_always(record: on_disk.ServerRecord, folder: on_disk.DataFolder) -> None:
    if (reply := _ask(record, "CONFIG SET appendfsync always", time.monotonic() + 5)) != b"+OK":
        raise EmbeddedServerError(f"the server of {folder.path} did not accept fsync=always: {reply!r}.")


def _reachable_record(folder: on_disk.DataFolder) -> on_disk.ServerRecord | None:
    """Read the server's record, check that its directory is safe, and move back a socket that a dead watcher moved."""
    record = on_disk.read_record(folder)
    if record is None:
        return None
    directory = Path(record.socket_path).parent
    if directory.exists() and not safety.is_private(directory):
        raise EmbeddedServerError(
            f"{directory}, where the socket of {folder.path} is said to be, is not private to user {os.geteuid()} "
            "(owner and mode 0700); the folder is served for another user, or was tampered with."
        )
    # A watcher moves the socket before it stops an idle server.
    shut = directory / keeper.SHUT_SOCKET
    if shut.exists():
        shut.rename(record.socket_path)
    return record


def _failed_start(binary: ServerBinary, folder: on_disk.DataFolder, log_start: int) -> EmbeddedServerError:
    return EmbeddedServerError(
        f"{binary} did not start on {folder.path}; the last lines of {folder.path / keeper.LOG}:\n"
        f"{on_disk.log_tail(folder, log_start)}"
    )


def _no_answer(
    record: on_disk.ServerRecord | None, reply: bytes | None, folder: on_disk.DataFolder
) -> EmbeddedServerError:
    process = f"process {record.pid}" if record else "a process"
    if reply is not None:
        problem = f"answers {reply.decode(errors='replace')!r}; call again later or raise start_timeout_seconds"
    else:
        problem = "does not answer on its socket; it may be stopped, or run in another container or on another host"
    return EmbeddedServerError(
        f"the server of {folder.path} ({process}) {problem}. The last lines of {folder.path / keeper.LOG}:\n"
        f"{on_disk.log_tail(folder)}"
    )
