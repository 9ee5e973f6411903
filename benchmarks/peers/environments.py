"""Throw-away environments for other libraries, under build/peers; nothing of theirs is kept in the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEERS", "Peer", "environment", "interpreter"]

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / "build" / "peers"
_UV = Path(sys.executable).with_name("uv")
_ENOUGH = (3, 12)
_ASK = "import sys; print(sys.executable, *sys.version_info[:2], sep='\\n')"
NAMED = "SLUICEGATE_PEER_PYTHON"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library, of one version.

    Attributes:
        distribution: its name on the package index.
        module: its import name.
        version: pinned.
    """

    distribution: str
    module: str
    version: str

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"


PEERS = (
    Peer("redis-message-queue", "redis_message_queue", "8.3.0"),
    Peer("redis-message-queue", "redis_message_queue", "11.0.1"),
)


def interpreter() -> Path | None:
    """Return a Python 3.12 or later: the one in SLUICEGATE_PEER_PYTHON, this one, or one found on the machine."""
    for candidate in _candidates():
        done = subprocess.run([candidate, "-c", _ASK], capture_output=True, text=True, check=False)
        if done.returncode == 0:  # a pyenv shim is there without its Python
            path, *numbers = done.stdout.split("\n")[:3]
            if tuple(map(int, numbers)) >= _ENOUGH:
                return Path(path)
    return None


def environment(peer: Peer, python: Path) -> Path:
    """Return the Python of an environment with this library and our parser; make the environment if needed.

    Raises:
        CalledProcessError: it could not be installed; what the installer said is in `stderr`.
    """
    folder = _FOLDER / f"{peer.distribution}-{peer.version}"
    done, program = folder / "installed", folder / "bin" / "python"
    if done.exists() and done.read_text() == str(python):
        return program
    _run("venv", "--quiet", "--clear", "--python", str(python), str(folder))
    _run("pip", "install", "--quiet", "--python", str(program), f"{peer.distribution}=={peer.version}", "hiredis")
    done.write_text(str(python))
    return program


def _run(*arguments: str) -> None:
    subprocess.run([_UV, *arguments], check=True, capture_output=True, text=True)


def _candidates() -> Iterator[str]:
    if named := os.environ.get(NAMED):
        yield named
    yield sys.executable
    for name in ("python3.13", "python3.12", "python3"):
        if found := shutil.which(name):
            yield found
    managed = subprocess.run(
        [_UV, "python", "find", "--no-project", "--managed-python", "--no-python-downloads", ">=3.12,<4"],
        capture_output=True,
        text=True,
        check=False,
    )
    if managed.returncode == 0:
        yield managed.stdout.strip()
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from map(str, sorted(pyenv.glob("3.1[23].*/bin/python"), reverse=True))
