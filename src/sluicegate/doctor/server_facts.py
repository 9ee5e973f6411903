"""What a server says about itself: INFO, CONFIG, TIME, and of a cluster its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluicegate.core.keys import text_of
from sluicegate.gateway import RedisGateway

__all__ = ["SETTINGS", "ServerFacts", "parse_info", "parse_pairs", "read_servers"]

SETTINGS = (
    *("maxmemory", "maxmemory-policy", "save", "appendfsync", "min-replicas-to-write", "maxclients", "timeout"),
    "stop-writes-on-bgsave-error",
)
"""What is asked for by CONFIG GET."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is known of one server.

    Attributes:
        server: where it is, in words.
        info: the fields of INFO; none if it was refused.
        config: the settings in `SETTINGS`; those that were refused are missing.
        clock_offset: by how many seconds its clock is ahead of this machine's; None if it was refused.
        clock_error: how exact that is, in seconds: half of the round trip.
        refused: what was refused, with the server's words.
        cluster: the fields of CLUSTER INFO; none for a server without a cluster.
        nodes: the lines of CLUSTER NODES, in words.
        default_rights: the commands and keys of the user `default`, as ACL GETUSER lists them; "" if it was refused.
    """

    server: str
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    clock_offset: float | None = None
    clock_error: float = 0.0
    refused: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[Sequence[str]] = ()
    default_rights: str = ""

    def number(self, name: str) -> int | None:
        """Return a field of INFO as a number; None if it is missing or no number."""
        value = self.info.get(name, "")
        return int(value) if value.removeprefix("-").isdigit() else None

    def setting(self, name: str) -> int | None:
        """Return a setting as a number; None if it is missing or no number."""
        value = self.config.get(name, "")
        return int(value) if value.isdigit() else None

    @property
    def is_cluster(self) -> bool:
        """Return whether the server is a node of a cluster."""
        return self.info.get("cluster_enabled") == "1"


def read_servers(gateway: RedisGateway, clock: Callable[[], float] = time.time) -> list[ServerFacts]:
    """Ask every primary about itself; nothing is retried.

    Raises:
        RedisUnavailableError: a server does not answer.
        RedisAccessError: it refuses the credentials.
    """
    commands: list[tuple[Any, ...]] = [
        ("INFO",),
        ("ACL", "GETUSER", "default"),
        *(("CONFIG", "GET", name) for name in SETTINGS),
    ]
    facts = [_facts(server, replies) for server, replies in gateway.ask(commands).items()]
    facts = [_with_clock(gateway, one, clock) for one in facts]
    nodes: list[tuple[Any, ...]] = [("CLUSTER", "INFO"), ("CLUSTER", "NODES")]
    in_cluster = {one.server: nodes for one in facts if one.is_cluster}
    answers = gateway.ask(in_cluster) if in_cluster else {}
    return [_with_cluster(one, answers[one.server]) if one.server in answers else one for one in facts]


def parse_info(reply: object) -> dict[str, str]:
    """Read the lines `name:value` of INFO or CLUSTER INFO."""
    pairs = (line.partition(":") for line in _text(reply).splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


def parse_pairs(value: str) -> dict[str, str]:
    """Read a value such as `ip=10.0.0.2,port=6379,state=online`."""
    return {name: text for name, _, text in (part.partition("=") for part in value.split(","))}


def _facts(server: str, replies: Sequence[Any]) -> ServerFacts:
    info, default, *settings = replies
    refused = {"INFO": str(info)} if isinstance(info, Exception) else {}
    config: dict[str, str] = {}
    for reply in settings:
        if isinstance(reply, Exception):
            refused["CONFIG GET"] = str(reply)
        else:
            config |= _config(reply)
    known = {} if "INFO" in refused else parse_info(info)
    rights = "" if isinstance(default, Exception) else _rights(default)
    return ServerFacts(server, known, config, refused=refused, default_rights=rights)


def _config(reply: Any) -> dict[str, str]:
    """Read a reply to CONFIG GET, in either protocol; a hosted service may leave a setting out."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _rights(reply: Any) -> str:
    """Return what a reply to ACL GETUSER says of commands and keys, in either protocol and as any version lists it."""
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    values = [value for name, value in fields.items() if _text(name) in ("commands", "keys")]
    return " ".join(_text(part) for value in values for part in (value if isinstance(value, list) else [value]))


def _with_clock(gateway: RedisGateway, facts: ServerFacts, clock: Callable[[], float]) -> ServerFacts:
    """Compare the clocks, on a connection that is open, one server at a time."""
    before = clock()
    reply = gateway.ask({facts.server: [("TIME",)]})[facts.server][0]
    after = clock()
    if isinstance(reply, Exception):
        return replace(facts, refused={**facts.refused, "TIME": str(reply)})
    there = int(reply[0]) + int(reply[1]) / 1e6
    return replace(facts, clock_offset=there - (before + after) / 2, clock_error=(after - before) / 2)


def _with_cluster(facts: ServerFacts, replies: Sequence[Any]) -> ServerFacts:
    info, nodes = replies
    refused = {
        name: str(reply)
        for name, reply in zip(("CLUSTER INFO", "CLUSTER NODES"), replies, strict=True)
        if isinstance(reply, Exception)
    }
    return replace(
        facts,
        refused={**facts.refused, **refused},
        cluster={} if isinstance(info, Exception) else parse_info(info),
        nodes=[] if isinstance(nodes, Exception) else [line.split() for line in _text(nodes).splitlines()],
    )


def _text(value: object) -> str:
    return text_of(value) if isinstance(value, bytes) else str(value)
