"""This program watches one embedded server: it starts it, counts its users, and stops it after an idle time.

It runs as a separate program (`python -I -S keeper.py FOLDER SOCKET IDLE_SECONDS [PROGRAM VERSION FSYNC]`, where FOLDER
is the number of an inherited descriptor), so it imports only a few modules of the standard library. With PROGRAM it
starts the server first and stays its parent. Without PROGRAM it watches a server whose watcher was killed. It reports
errors on stderr, which it closes once the server process exists.

It uses these files:
- FOLDER/server.lock is locked by the server process itself for as long as it lives, so a free lock proves that no
  server writes to the folder. Its lines: process id, version, socket.
- keeper.lock beside the socket is locked by this process and holds its process id.
- FOLDER/start.lock is held by whoever starts or stops a server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import stat
import sys
import time

# Known to type checkers; importing typing itself would cost a tenth of the start-up.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

__all__ = [
    "KEEPER_LOCK",
    "LOG",
    "SERVER_LOCK",
    "SHUT_SOCKET",
    "START_LOCK",
    "Keeper",
    "Link",
    "main",
    "open_own",
    "try_lock",
]

START_LOCK = "start.lock"
SERVER_LOCK = "server.lock"
LOG = "redis.log"
SOCKET = "redis.sock"
# The socket is moved here while the server is being stopped, so that no new user connects.
SHUT_SOCKET = "redis.shut"
KEEPER_LOCK = "keeper.lock"

# Answers of Keeper.run_once.
STARTING, BUSY, QUIET, GONE = "starting", "busy", "quiet", "gone"

_REPLY_SECONDS = 5.0
_START_LIMIT_SECONDS = 30.0
_STARTING_POLL_SECONDS = 0.01
_RECONNECT_SECONDS = 0.05
_STOP_POLL_SECONDS = 0.01


def try_lock(descriptor: int, seconds: float = 0.0) -> bool:
    """Take an exclusive lock on an open file within `seconds`; return False if another process holds it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        else:
            return True


def open_own(path: str | os.PathLike[str], flags: int, folder: int | None = None) -> int:
    """Open a regular file of this user that has no other name; create it for this user alone if `flags` ask for it.

    Raises:
        OSError: the file is a link, a FIFO, or another user's, or cannot be opened.
    """
    refused = f"it is not a regular file of user {os.geteuid()} with a single name"
    try:
        # O_NONBLOCK: opening a FIFO would wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise PermissionError(errno.EPERM, refused, os.fspath(path)) from None
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and facts.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, refused, os.fspath(path))


def open_lock(path: str | os.PathLike[str], folder: int | None = None) -> int:
    """Open a lock file, and create it if missing."""
    return open_own(path, os.O_RDWR | os.O_CREAT, folder)


class Link:
    """A link is a connection to the server that supports inline commands only."""

    def __init__(self, path: str, timeout_seconds: float = _REPLY_SECONDS) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_seconds)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._replies = self._socket.makefile("rb")

    def ask(self, command: str) -> bytes:
        """Send one command and return its reply, even an error reply, without the frame of a bulk string.

        Raises:
            OSError: the server closed the connection or did not answer in time.
        """
        self._socket.sendall(command.encode() + b"\r\n")
        head = self._replies.readline()
        if not head.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        if not head.startswith(b"$"):
            return head.rstrip()
        size = int(head[1:])
        body = self._replies.read(size + 2)
        if len(body) < size + 2:
            raise ConnectionResetError("the server closed the connection")
        return body[:size]

    def wait_for_end(self, seconds: float) -> None:
        """Sleep, but wake at once when the server closes the connection."""
        select.select([self._socket], [], [], seconds)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


class Keeper:
    """A keeper watches one server; the current folder must be the server's data folder.

    Users are open connections, so a killed process stops counting by itself.

    Args:
        socket_path: the server's socket, in a private directory that the keeper removes at the end.
        idle_seconds: how long the server may be without users before it is stopped.
        child: the server's process id, if the keeper is its parent.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        socket_path: str,
        idle_seconds: float,
        child: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket_path = socket_path
        self._directory = os.path.dirname(socket_path)
        self._shut_path = os.path.join(self._directory, SHUT_SOCKET)
        self._idle_seconds = idle_seconds
        self._child = child
        self._clock = clock
        self._server_lock = open_lock(SERVER_LOCK)
        self._link: Link | None = None
        self._connections = -1
        self._idle_since = clock()

    def run(self) -> None:
        """Watch until the server has ended, then remove its private directory."""
        interval = max(0.02, min(1.0, self._idle_seconds / 5))
        while (state := self.run_once()) != GONE:
            if state == STARTING:
                time.sleep(_STARTING_POLL_SECONDS)
            elif self._link is not None:
                self._link.wait_for_end(interval)
            else:
                time.sleep(_RECONNECT_SECONDS)
        self._remove_directory()

    def run_once(self) -> str:
        """Check once; return STARTING, BUSY (used since the last check), QUIET (unused), or GONE (the server ended)."""
        try:
            if self._link is None and (state := self._open_link()) is not None:
                return state
            if self._is_out_of_reach():
                return GONE if self._stop_server() else BUSY
            if self._was_used():
                self._idle_since = self._clock()
                return BUSY
            if self._clock() - self._idle_since < self._idle_seconds:
                return QUIET
            return self._stop_unless_joined()
        except OSError:
            # The server has ended or is too busy to answer; the next check shows which.
            self._close_link()
            return BUSY

    def _open_link(self) -> str | None:
        try:
            self._link = Link(self._socket_path)
        except (FileNotFoundError, ConnectionRefusedError):
            if not self._child_runs():
                return GONE
            if self._clock() - self._idle_since > _START_LIMIT_SECONDS:
                self._give_up_start()
            return STARTING
        self._idle_since = self._clock()
        return None

    def _give_up_start(self) -> None:
        """End a child that opened no socket, or whose socket was deleted at once, because nobody can reach it."""
        assert self._child is not None
        os.kill(self._child, signal.SIGTERM)
        self._idle_since = self._clock()

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _ask(self, command: str) -> bytes:
        assert self._link is not None
        return self._link.ask(command)

    def _was_used(self) -> bool:
        """Return whether another client is connected, or was since the last check."""
        facts = dict(
            line.split(b":", 1)
            for section in ("clients", "stats")
            for line in self._ask(f"INFO {section}").splitlines()
            if b":" in line
        )
        before, self._connections = self._connections, int(facts.get(b"total_connections_received", -1))
        return facts.get(b"connected_clients") != b"1" or self._connections != before

    def _is_out_of_reach(self) -> bool:
        """Return whether the data folder or the socket was deleted, so that nobody can connect and no data is kept."""
        try:
            return not (
                os.path.samestat(os.stat(SERVER_LOCK), os.fstat(self._server_lock))
                and os.path.exists(self._socket_path)
            )
        except FileNotFoundError:
            return True

    def _stop_unless_joined(self) -> str:
        """Stop the idle server, unless a process is joining it."""
        start_lock = open_lock(START_LOCK)
        try:
            if not try_lock(start_lock):
                return BUSY
            os.rename(self._socket_path, self._shut_path)
            # A client that connected before the rename is counted by the second check at the latest.
            if not (self._was_used() or self._was_used()) and self._stop_server():
                return GONE
            return BUSY
        finally:
            if os.path.exists(self._shut_path):
                os.rename(self._shut_path, self._socket_path)
            fcntl.flock(start_lock, fcntl.LOCK_UN)
            os.close(start_lock)

    def _stop_server(self) -> bool:
        """Make the server save and end, and wait for it; return False if it refuses."""
        try:
            self._ask("SHUTDOWN")
        except ConnectionError:
            self._close_link()
        else:
            return False
        while not try_lock(self._server_lock):
            self._child_runs()
            time.sleep(_STOP_POLL_SECONDS)
        fcntl.flock(self._server_lock, fcntl.LOCK_UN)
        self._child_runs()
        return True

    def _child_runs(self) -> bool:
        """Return whether the server is a living child of this process; reap an ended one."""
        if self._child is not None and os.waitpid(self._child, os.WNOHANG) != (0, 0):
            self._child = None
        return self._child is not None

    def _remove_directory(self) -> None:
        for name in (SOCKET, SHUT_SOCKET, KEEPER_LOCK):
            try:
                os.unlink(os.path.join(self._directory, name))
            except FileNotFoundError:
                continue
        if os.path.isdir(self._directory):
            os.rmdir(self._directory)


def start_server(program: str, version: str, fsync: str, socket_path: str) -> int:
    """Start the server on the current folder; return its process id.

    Raises:
        OSError: the folder is in use, or a file in it cannot be written.
    """
    lock = open_lock(SERVER_LOCK)
    try:
        if not try_lock(lock, seconds=1.0):
            raise BlockingIOError(f"{SERVER_LOCK} is held: another server uses this folder")
        child = os.fork()
        if child == 0:
            _become_server(lock, program, version, fsync, socket_path)
        return child
    finally:
        os.close(lock)


def _become_server(lock: int, program: str, version: str, fsync: str, socket_path: str) -> NoReturn:
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(f"{os.getpid()}\n{version}\n{socket_path}\n"), 0)
        # The lock belongs to the open file, which the server keeps for its whole life.
        os.set_inheritable(lock, True)
        _redirect_output()
        os.execv(program, [program, *_server_arguments(fsync, socket_path)])  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"{program} cannot be started: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _server_arguments(fsync: str, socket_path: str) -> list[str]:
    # No `dir`: the server stays in the current folder, so no folder name needs quoting for its option parser.
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "appendonly": "yes",
        "appendfsync": fsync,
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
        "daemonize": "no",
        "logfile": LOG,
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _redirect_output() -> None:
    """Detach from the starter's terminal or pipes, and send further output to the folder's log."""
    sys.stderr.flush()
    log = open_own(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(nothing)


def main(arguments: list[str]) -> None:
    """Detach from the starter, start the server if asked to, and watch it to its end."""
    folder, socket_path, idle_seconds, *start = arguments
    if os.fork():
        os._exit(0)
    # Without this, the server makes its files readable by all users.
    os.umask(0o077)
    # A starter may have ignored or blocked these; Redis needs them for its own children and for a clean stop.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        # Use the descriptor: the starter has checked it, and the folder may be moved meanwhile.
        os.fchdir(int(folder))
        os.close(int(folder))
        keeper_lock = open_lock(os.path.join(os.path.dirname(socket_path), KEEPER_LOCK))
        fcntl.flock(keeper_lock, fcntl.LOCK_EX)
        os.pwrite(keeper_lock, str(os.getpid()).encode(), 0)
        child = start_server(start[0], start[1], start[2], socket_path) if start else None
        _redirect_output()
    except OSError as error:
        sys.exit(str(error))
    Keeper(socket_path, float(idle_seconds), child).run()


if __name__ == "__main__":
    main(sys.argv[1:])
