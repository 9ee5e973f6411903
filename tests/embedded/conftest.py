from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.embedded import binary, stop_server
from tests.support.embedded_servers import processes_of
from tests.support.waiting import wait_until

# Without any program, the bare name makes tests fail and not vanish.
PROGRAMS = list(binary._candidates()) or [Path("redis-server")]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a data folder; no process may be left in it."""
    folder = tmp_path / "home"
    yield folder
    stop_server(folder)
    wait_until(lambda: not processes_of(folder), f"no process works in {folder}")


@pytest.fixture(params=PROGRAMS, ids=lambda path: path.parts[-3] + "/" + path.name)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each server program in turn, for this process and for those that it starts."""
    path: Path = request.param
    monkeypatch.setenv(binary.SERVER_VARIABLE, str(path))
    return path
