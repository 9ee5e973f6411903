"""This module handles the files of an embedded server: locks, record, socket and log."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluicegate.embedded import keeper, safety
from sluicegate.errors import EmbeddedServerError, UnsafeFolderError

__all__ = [
    "DataFolder",
    "ServerRecord",
    "check_files",
    "exclusive",
    "is_locked",
    "is_new_layout",
    "log_size",
    "log_tail",
    "make_socket_path",
    "open_data_folder",
    "read_record",
]

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, with the final NUL.
SOCKET_PATH_BYTES = 103
_LOG_LINES = 8
# Redis keeps its append-only file in this folder since 7.0; an older server does not look there.
_NEW_LAYOUT = "appendonlydir"
# The server opens these files by name in its folder, besides those in the folder of the new layout.
_OPENED_BY_SERVER = re.compile(r"appendonly|temp-|dump")


@dataclass(frozen=True, slots=True)
class DataFolder:
    """This is an open data folder. Its files are opened relative to the checked descriptor, not by path."""

    path: Path
    descriptor: int

    def __enter__(self) -> DataFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def open(self, name: str, flags: int) -> int:
        """Open a file of this user in the folder, see `keeper.open_own`."""
        return keeper.open_own(name, flags, self.descriptor)


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """This record was written to server.lock by the process that holds it."""

    pid: int
    version: str
    socket_path: str


def open_data_folder(path: Path, *, make: bool = True) -> DataFolder:
    """Open the data folder, and create it if missing, after checking that only this user can write to it.

    Raises:
        UnsafeFolderError: another user owns the folder, can write to it, or can replace it.
        FileNotFoundError: the folder does not exist, and `make` is False.
        EmbeddedServerError: the folder cannot be opened, made or written.
    """
    try:
        where, descriptor = safety.open_folder(path, make=make)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise EmbeddedServerError(f"the data folder {path} cannot be opened or made: {error.strerror}.") from error
    by_this_user = os.access in os.supports_effective_ids
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=by_this_user):
        os.close(descriptor)
        raise EmbeddedServerError(
            f"the data folder {path} cannot be written by user {os.geteuid()}; "
            "choose another folder or change its permissions."
        )
    return DataFolder(where, descriptor)


@contextmanager
def exclusive(folder: DataFolder, deadline: float) -> Iterator[None]:
    """Hold start.lock, whose holder alone starts, stops or repairs the folder's server."""
    path = folder.path / keeper.START_LOCK
    try:
        lock = keeper.open_lock(keeper.START_LOCK, folder.descriptor)
    except OSError as error:
        raise _unusable_lock(path, error) from error
    try:
        if not _taken(lock, path, deadline):
            raise EmbeddedServerError(
                f"another process has been starting or stopping the server of {folder.path} for too long; "
                f"see {folder.path / keeper.LOG}."
            )
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile by another thread shares the open file and its lock.
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
        return _foreign(path, error)
    advice = "the folder must be on a file system with room and with file locks"
    return EmbeddedServerError(f"{path} cannot be opened and locked: {error.strerror}; {advice}.")


def _foreign(path: Path, error: PermissionError) -> UnsafeFolderError:
    return UnsafeFolderError(
        f"{path} cannot be used: {error.strerror}; remove it, or use another folder: one serves only its owner."
    )


def is_locked(path: str | Path, folder: DataFolder | None = None) -> bool:
    """Return whether another process holds the lock file.

    Only the holder of start.lock may call this, because the check takes the lock for a moment.

    Raises:
        UnsafeFolderError: the lock file does not belong to this user.
    """
    try:
        lock = keeper.open_own(path, os.O_RDWR, None if folder is None else folder.descriptor)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise _unusable_lock(Path(path) if folder is None else folder.path / path, error) from error
    try:
        if not keeper.try_lock(lock):
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False
    finally:
        os.close(lock)


def read_record(folder: DataFolder) -> ServerRecord | None:
    """Read the record of a folder's server; return None if there is no readable one."""
    try:
        with os.fdopen(folder.open(keeper.SERVER_LOCK, os.O_RDONLY), "rb") as file:
            pid, version, socket_path = os.fsdecode(file.read()).splitlines()
        return ServerRecord(int(pid), version, socket_path)
    except (OSError, ValueError):
        return None


def check_files(folder: DataFolder) -> None:
    """Check the files that the server will open, since it follows links, and revoke other users' permissions.

    Raises:
        UnsafeFolderError: a file is a link, a FIFO, or belongs to another user.
    """
    try:
        os.close(folder.open(keeper.LOG, os.O_WRONLY | os.O_APPEND))
    except PermissionError as error:
        raise _foreign(folder.path / keeper.LOG, error) from error
    except OSError:
        pass  # the file is missing, or the server reports the problem
    for name in filter(_OPENED_BY_SERVER.match, os.listdir(folder.descriptor)):
        _check_file(folder.path, name, folder.descriptor)
    try:
        inner = os.open(_NEW_LAYOUT, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder.descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for name in os.listdir(inner):
            _check_file(folder.path / _NEW_LAYOUT, name, inner)
    finally:
        os.close(inner)


def _check_file(where: Path, name: str, folder: int) -> None:
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    directory = stat.S_ISDIR(facts.st_mode)
    if facts.st_uid != os.geteuid() or not (directory or stat.S_ISREG(facts.st_mode)):
        raise UnsafeFolderError(
            f"{where / name} is a link, a special file or another user's, and the server would write through it; "
            "remove it, or use another folder."
        )
    if facts.st_mode & 0o077:
        os.chmod(name, stat.S_IMODE(facts.st_mode) & 0o700, dir_fd=folder)


def is_new_layout(folder: DataFolder) -> bool:
    """Return whether Redis 7 or newer wrote the data."""
    try:
        return stat.S_ISDIR(os.stat(_NEW_LAYOUT, dir_fd=folder.descriptor, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def make_socket_path() -> Path:
    """Make a fresh private directory for one server and return the path for its socket, short enough to bind.

    Another user cannot create a fresh directory beforehand, and no two servers can share a socket, whatever happens to
    the data folder meanwhile. The directory is made in the directory for temporary files, or in /tmp if that path is
    too long or others can replace its content.

    Raises:
        UnsafeFolderError: others can replace the content of both directories.
        EmbeddedServerError: neither directory can be used.
    """
    problem: Exception | None = None
    for parent in ("", "/tmp"):  # noqa: S108 - checked before use
        try:
            directory = safety.trusted_way(Path(parent or tempfile.gettempdir()))
            path = Path(tempfile.mkdtemp(prefix="sluicegate-", dir=directory)) / keeper.SOCKET
        except (OSError, UnsafeFolderError) as error:
            problem = error
            continue
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
        path.parent.rmdir()
    kind = UnsafeFolderError if isinstance(problem, UnsafeFolderError) else EmbeddedServerError
    raise kind(f"no private directory for the server's socket can be made: {problem}; set TMPDIR.") from problem


def log_tail(folder: DataFolder, since: int = 0) -> str:
    """Return the last lines of the server's log that were written after byte `since`."""
    try:
        with os.fdopen(folder.open(keeper.LOG, os.O_RDONLY), "rb") as log:
            log.seek(since)
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error.strerror})"
    return "\n".join(lines[-_LOG_LINES:]) or "(the log is empty)"


def log_size(folder: DataFolder) -> int:
    """Return the size of the server's log in bytes."""
    try:
        return os.stat(keeper.LOG, dir_fd=folder.descriptor, follow_symlinks=False).st_size
    except OSError:
        return 0
