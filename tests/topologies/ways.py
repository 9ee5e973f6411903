"""The ways that the core runs on: which topology, which program, which flavour, which protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from sluicegate import RedisMessageQueue, RedisStreamQueue
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import FLAVOURS, Blocking, Flavour, Loop
from tests.support.jobs import Twin
from tests.support.servers import programs
from tests.support.settings import PRODUCT, UNIX_SPEAKS_RESP3
from tests.support.topologies import (
    AclCluster,
    AclServer,
    ClusterServers,
    SentinelServers,
    TlsServer,
    Topology,
    UnixServer,
)

PROTOCOLS = tuple(int(number) for number in os.environ.get("SLUICEGATE_TEST_PROTOCOLS", "2,3").split(","))
# What a complete run has, as program and versions. SLUICEGATE_TEST_WANTED overrides it where less, or more, is meant.
_WANTED = os.environ.get("SLUICEGATE_TEST_WANTED", "redis 6.2,redis 7.0,redis 8.2,valkey")


# By client and threads, by client and asyncio, or by URL.
_USUAL: dict[type[Topology], int] = {
    UnixServer: 0, Topology: 1, AclServer: 2, ClusterServers: 1, AclCluster: 0, SentinelServers: 2, TlsServer: 1,
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way of reaching Redis, in one flavour; `make test` takes the usual ones only."""

    topology: type[Topology]
    program: Path
    flavour: Flavour
    protocol: int
    by_url: bool = False
    usual: bool = True

    def __str__(self) -> str:
        on = f"-{version(self.program).replace(' ', '')}" if self.topology is Topology else ""
        return f"{self.topology.name}{on}-{self.flavour}-resp{self.protocol}{'-url' if self.by_url else ''}"


class QueueMaker:
    """Makes queues that go a way, and closes them with their clients."""

    def __init__(self, way: Way, topology: Topology, loop: Loop) -> None:
        self._way, self._topology, self._loop = way, topology, loop
        self._closers: list[Callable[[], Any]] = []

    def __call__(self, name: str = "orders", **options: Any) -> Any:
        from sluicegate.asyncio import RedisMessageQueue as AsyncQueue

        return self._keep(self._make(RedisMessageQueue, AsyncQueue, name, options))

    def stream(self, name: str = "orders", **options: Any) -> Any:
        """Make a stream instead of a queue."""
        from sluicegate.asyncio import RedisStreamQueue as AsyncStream

        return self._keep(self._make(RedisStreamQueue, AsyncStream, name, options))

    def jobs(self, name: str = "orders", **options: Any) -> Any:
        """Make a queue of jobs instead of one of messages."""
        from sluicegate.asyncio.jobs import RedisJobQueue as AsyncJobs

        made = self._make(RedisJobQueue, AsyncJobs, name, options)
        return self._keep(Twin(made._target, self._loop) if isinstance(made, Blocking) else made)

    def close(self) -> None:
        for close in reversed(self._closers):
            close()

    def _keep(self, made: Any) -> Any:
        self._closers.append(made.close)
        return made

    def _make(self, kind: Any, async_kind: Any, name: str, options: dict[str, Any]) -> Any:
        flavour, given = (
            self._way.flavour,
            {"decode_responses": self._way.flavour.decodes, "protocol": self._way.protocol},
        )
        if self._way.by_url:
            where: dict[str, Any] = {"url": with_options(self._topology.url, given)}
        elif flavour.asyncio:
            client = self._loop.run(lambda: self._topology.async_client(**given))
            self._closers.append(lambda: self._loop.run(client.aclose))
            where = {"client": client}
        else:
            where = {"client": self._topology.client(**given)}
            self._closers.append(where["client"].close)
        if not flavour.asyncio:
            return kind(name, **where, **options)
        return Blocking(async_kind(name, **where, **options), self._loop)


def with_options(url: str, options: dict[str, Any]) -> str:
    joint = "&" if "?" in url else "?"
    return url + joint + "&".join(f"{name}={value}" for name, value in options.items())


def ways() -> Iterator[Way]:
    """Every way on this machine that redis-py can go."""
    return (way for way in _ways() if not _impossible(way))


def _impossible(way: Way) -> bool:
    """Return whether redis-py cannot do this."""
    resp3 = way.topology is UnixServer and way.protocol == 3 and not way.flavour.asyncio
    return resp3 and not UNIX_SPEAKS_RESP3


def _ways() -> Iterator[Way]:
    for topology, program in places():
        by_url = Way(topology, program, Flavour(decodes=True), PROTOCOLS[-1], by_url=True)
        if PRODUCT:
            yield from (Way(topology, program, flavour, protocol) for flavour in FLAVOURS for protocol in PROTOCOLS)
            yield by_url
            continue
        # The two that differ in everything, and one by URL: of these one is usual, in turn.
        differing = (
            Way(topology, program, Flavour(), PROTOCOLS[0]),
            Way(topology, program, Flavour(asyncio=True, decodes=True), PROTOCOLS[-1]),
            by_url,
        )
        for at, way in enumerate(differing):
            yield replace(way, usual=at == _USUAL[topology])


def places() -> Iterator[tuple[type[Topology], Path]]:
    found = programs()
    yield UnixServer, found[0]
    for program in found:
        yield Topology, program
    yield AclServer, found[0]
    yield ClusterServers, found[0]
    yield AclCluster, found[0]
    yield SentinelServers, found[0]
    if (tls := with_tls()) is not None:
        yield TlsServer, tls


def missing() -> list[str]:
    """Return what a complete run would have beyond this one, with the reason."""
    versions = [version(program) for program in programs()]
    wanted = [name.strip() for name in _WANTED.split(",") if name.strip()]
    lines = [
        f"{name}: no such program on PATH, in a wheel or in SLUICEGATE_TEST_SERVERS"
        for name in wanted
        if not any(found == name or found.startswith((f"{name} ", f"{name}.")) for found in versions)
    ]
    if with_tls() is None:
        lines.append(
            "TLS: no openssl program, or no server program built with TLS (apt-get install redis-server openssl)"
        )
    return lines


@cache
def version(program: Path) -> str:
    """`redis 7.0` or the like."""
    try:
        reported = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return "none"
    product, _, rest = reported.partition(" server v=")
    return f"{product.lower()} {'.'.join(rest.split(' ')[0].split('.')[:2])}"


@cache
def with_tls() -> Path | None:
    """Return the first program that speaks TLS."""
    if shutil.which("openssl") is None:
        return None
    return next((program for program in programs() if _speaks_tls(program)), None)


def _speaks_tls(program: Path) -> bool:
    """Return whether a server program has TLS. One without it refuses the options; the others miss the certificate."""
    reported = subprocess.run(
        [program, "--port", "0", "--tls-auth-clients", "no", "--tls-port", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    text = reported.stdout + reported.stderr
    return not any(words in text for words in ("Bad directive", "not supported", "Failed finding TLS support"))
