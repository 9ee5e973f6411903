"""What an embedded server leaves in its data folder and in its private directory: locks, record, socket, log."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded import keeper
from sluicegate.errors import EmbeddedServerError

__all__ = [
    "ServerRecord",
    "exclusive",
    "is_locked",
    "is_private",
    "log_tail",
    "make_socket_path",
    "prepare",
    "read_record",
]

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, with the final NUL.
SOCKET_PATH_BYTES = 103
_LOG_LINES = 8


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What the process that holds server.lock wrote into it."""

    pid: int
    version: str
    socket_path: str


def prepare(folder: Path) -> None:
    """Make the data folder when it is missing and check that it can be written.

    Raises:
        EmbeddedServerError: it cannot be made or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedServerError(f"the data folder {folder} cannot be made: {error.strerror}.") from error
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise EmbeddedServerError(
            f"the data folder {folder} cannot be written by user {os.geteuid()}; "
            "choose another folder or change its permissions."
        )


@contextmanager
def exclusive(folder: Path, deadline: float) -> Iterator[None]:
    """Hold start.lock: only its holder starts, stops or repairs the folder's server."""
    path = folder / keeper.START_LOCK
    try:
        lock = keeper.open_lock(path)
    except OSError as error:
        raise _unusable_lock(path, error) from error
    try:
        if not _taken(lock, path, deadline):
            raise EmbeddedServerError(
                f"another process has been starting or stopping the server of {folder} for too long; "
                f"see {folder / keeper.LOG}."
            )
        try:
            yield
        finally:
            # Not left to close(): a process forked meanwhile by another thread shares the open file and its lock.
            fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


def _taken(lock: int, path: Path, deadline: float) -> bool:
    try:
        return keeper.try_lock(lock, max(0.0, deadline - time.monotonic()))
    except OSError as error:
        raise _unusable_lock(path, error) from error


def _unusable_lock(path: Path, error: OSError) -> EmbeddedServerError:
    if isinstance(error, PermissionError):
        advice = "a folder serves one user, so choose one of your own"
    else:
        advice = "the folder must be on a file system with room and with file locks"
    return EmbeddedServerError(f"{path} cannot be opened and locked: {error.strerror}; {advice}.")


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock file. Only for holders of start.lock: asking takes it for a moment."""
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        if not keeper.try_lock(lock):
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False
    finally:
        os.close(lock)


def read_record(folder: Path) -> ServerRecord | None:
    """Read where the server of a folder is; None when there is no readable record."""
    try:
        pid, version, socket_path = os.fsdecode((folder / keeper.SERVER_LOCK).read_bytes()).splitlines()
        return ServerRecord(int(pid), version, socket_path)
    except (OSError, ValueError):
        return None


def is_private(directory: Path) -> bool:
    """Whether a directory (no link to one) is this user's alone, so that nobody else can have put a socket there."""
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def make_socket_path() -> Path:
    """Make a fresh private directory for one server and return the path for its socket, short enough to bind.

    A fresh directory per start cannot be made beforehand by another user, and no two servers can share a socket,
    whatever happens to the data folder meanwhile.

    Raises:
        EmbeddedServerError: the directory for temporary files cannot be used.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix="sluicegate-")) / keeper.SOCKET
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            path.parent.rmdir()
            path = Path(tempfile.mkdtemp(prefix="sluicegate-", dir="/tmp")) / keeper.SOCKET
    except OSError as error:
        raise EmbeddedServerError(f"no private directory for the server's socket can be made: {error}.") from error
    return path


def log_tail(folder: Path, since: int = 0) -> str:
    """Return the last lines of the server's log, of those written after byte `since`."""
    try:
        with (folder / keeper.LOG).open("rb") as log:
            log.seek(since)
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error.strerror})"
    return "\n".join(lines[-_LOG_LINES:]) or "(the log is empty)"


def log_size(folder: Path) -> int:
    """Return the size of the server's log in bytes."""
    try:
        return (folder / keeper.LOG).stat().st_size
    except OSError:
        return 0
