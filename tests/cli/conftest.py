"""The command line is called in this process, on the test's server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.cli.main import run
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer


@dataclass(frozen=True)
class Called:
    """What a call of the command line came to."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the JSON objects of stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        """Return the one JSON object of stdout."""
        (one,) = self.records
        return one


Call = Callable[..., Called]


@pytest.fixture
def url(client: redis.Redis, server: RedisServer) -> str:
    """Return the URL of the test's server, which is empty."""
    return server.url


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let the command line see no settings of this machine, and return the empty folder that it runs in."""
    for name in ("SLUICEGATE_URL", "SLUICEGATE_CONFIG", "FORCE_COLOR", "NO_COLOR", "SLUICEGATE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call_bare(outside: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that calls the command line without any settings."""

    def called(*arguments: object) -> Called:
        capfd.readouterr()
        code = run([os.fspath(one) if isinstance(one, Path) else str(one) for one in arguments])
        out, err = capfd.readouterr()
        return Called(code, out, err)

    return called


@pytest.fixture
def call(call_bare: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that calls the command line on the test's server."""
    monkeypatch.setenv("SLUICEGATE_URL", url)
    return call_bare


@pytest.fixture
def orders(make_queue: MakeQueue) -> RedisMessageQueue:
    """Return the queue `orders` of the test's server."""
    return make_queue("orders")
