"""The doctor's tests examine real servers that were started, configured or damaged for one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from sluicegate import RedisGateway
from sluicegate.doctor import Finding, Severity, examine
from sluicegate.place import Place
from tests.support.servers import RedisServer

Examine = Callable[..., list[Finding]]


@pytest.fixture
def gateway(server: RedisServer, bare_client: redis.Redis) -> Iterator[RedisGateway]:
    """Yield a gateway to an empty server, whose settings are restored afterwards."""
    names = ("maxmemory", "maxmemory-policy", "maxclients", "timeout", "appendonly", "appendfsync", "save")
    before = {name: bare_client.config_get(name)[name] for name in names}
    made = RedisGateway(url=server.url)
    yield made
    made.close()
    for name, value in before.items():
        bare_client.config_set(name, value)


@pytest.fixture
def look(gateway: RedisGateway) -> Examine:
    """Return a function that examines the server without measuring rates."""
    return lambda places=None: examine(gateway, places, sample_seconds=0)


def of(findings: list[Finding], check: str, *severities: str) -> list[Finding]:
    """Return the findings of one check, of some severities or all but `ok`."""
    wanted = severities or [each for each in Severity if each != "ok"]
    return [finding for finding in findings if finding.check == check and finding.severity in wanted]


def one(findings: list[Finding], check: str, *severities: str) -> Finding:
    """Return the one finding of a check."""
    found = of(findings, check, *severities)
    assert len(found) == 1, found
    return found[0]


ORDERS = [Place("orders")]
