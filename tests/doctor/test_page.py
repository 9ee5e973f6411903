"""The page about the doctor lists its checks, and its program runs."""

from __future__ import annotations

import re

import pytest
import redis

from tests.support.project import ROOT
from tests.support.servers import RedisServer
from tests.support.snippets import snippet

PAGE = (ROOT / "docs" / "operations.md").read_text()
_CHECK = re.compile(r"(?:\b(?:ok|note|warning|error|could_not_look|rule)|\))\(\s*\"(\w+)\"")


def test_the_table_names_every_check() -> None:
    sources = [path.read_text() for path in (ROOT / "src" / "sluicegate" / "doctor").glob("*.py")]
    used = {name for text in sources for name in _CHECK.findall(text)}
    section = PAGE.split("## Doctor")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert used - {"queues", "readable"} == listed
    assert len(listed) == 21


def test_its_program_prints_what_is_wrong(
    server: RedisServer, bare_client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        exec(snippet("doctor"), {"url": server.url})  # noqa: S102
    finally:
        bare_client.config_set("maxmemory-policy", "noeviction")
    printed = capsys.readouterr().out
    assert "warning: " in printed
    assert "maxmemory-policy is allkeys-lru" in printed
    assert "ok: " not in printed
