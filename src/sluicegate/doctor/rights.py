"""The rules about the rights of the user: every command and key that is missing, by what it is needed for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate._session import new_id
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.transitions.examine import EXAMINED, probe_rights_call
from sluicegate.depths import keys_of
from sluicegate.doctor.finding import Finding, could_not_look, error, note, ok
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place

__all__ = ["IN_SCRIPTS", "NEEDS", "SENT", "Need", "check_rights"]

_MOST_PLACES = 50
Arguments = Mapping[str, Sequence[str]]

_NO_RIGHT = re.compile(r"no permissions?\b|can't run this command|can't access at least one of the keys|NOPERM")
_UNKNOWN = re.compile(r"unknown (Redis )?command", re.IGNORECASE)


def _parsed(*commands: str) -> Arguments:
    return {name: words for name, *words in (command.split() for command in commands)}


IN_SCRIPTS = _parsed(
    *("time", "exists @", "get @", "pexpire @ 1000", "pttl @", "strlen @"),
    *(
        "hdel @ f",
        "hexists @ f",
        "hget @ f",
        "hgetall @",
        "hincrby @ f x",
        "hkeys @",
        "hlen @",
        "hmget @ f",
        "hset @ f v g",
    ),
    *("lindex @ 0", "llen @", "lpush ! v", "lrange @ 0 1", "lrem @ 1 v", "lset @ 0 v", "ltrim @ 0 1", "rpop @"),
    *("rpush ! v", "sadd ! v", "smismember @ v", "xadd @ NOMKSTREAM * f v", "xlen @", "xrevrange @ + -"),
    *("zadd @ x v", "zcard @", "zcount @ 0 1", "zrange @ 0 1", "zrangebyscore @ 0 1", "zrank @ v", "zrem @ v"),
    *("zremrangebyrank @ 0 1", "zscore @ v"),
    # These replace or remove the spare key, so they come last.
    *("set @ v XX PX 1000", "pexpireat @ 1000", "unlink @", "del @"),
)
"""What every script may call, with arguments that have no effect; see the script for `@` and `!`."""
_IN_STREAMS = _parsed(
    *("xack @ g 1-1", "xdel @ 1-1", "xgroup DELCONSUMER @ g c", "xinfo GROUPS @", "xpending @ g", "xrange @ - +"),
    "xtrim @ MAXLEN 1",
)
_IN_REPAIR = _parsed("scan 0 COUNT 1", "hscan @ 0")
SENT: Arguments = {
    "evalsha": ("0" * 40, "0"),
    "eval": ("return 1", "0"),
    "blpop": ("@", "0.01"),
    "xread": ("COUNT", "1", "STREAMS", "@", "0"),
    "ping": (),
    "type": ("@",),
}
"""What the client sends itself, with arguments that have no effect."""


@dataclass(frozen=True, slots=True)
class Need:
    """Commands that some uses of a queue need beyond the rule for all.

    Attributes:
        use: what needs them.
        without: what happens without them.
        sent: commands that the client sends, with arguments that have no effect.
        called: commands that scripts call.
    """

    use: str
    without: str
    sent: Arguments = field(default_factory=dict)
    called: Arguments = field(default_factory=dict)


FOR_STREAMS = Need("streams and their groups", "they cannot be used", called=_IN_STREAMS)
FOR_CLUSTER = Need(
    "clusters", "clients cannot follow the slots", sent={"cluster|slots": (), "command": (), "asking": ()}
)
NEEDS = (
    FOR_STREAMS,
    FOR_CLUSTER,
    Need("finding queues and for repair()", "queues must be named, and repair() misses some", called=_IN_REPAIR),
    Need("durability=replicated(n)", "it raises DurabilityAccessError", sent={"wait": ("0", "1")}),
    Need(
        "durability='fsync'",
        "it raises DurabilityAccessError",
        sent={"waitaof": ("0", "0", "1"), "command|info": ("ping",)},
    ),
    Need("the check of maxmemory-policy and for doctor", "they do not look", sent={"info": ("memory",)}),
    Need("errors about large messages and for doctor", "they know less", sent={"config|get": ("maxmemory",)}),
)
"""What only some uses need; `docs/access.md` has the same table."""


def check_rights(gateway: RedisGateway, places: Sequence[Place], *, is_cluster: bool) -> Iterator[Finding]:
    """Yield what the user of the connection may not do.

    Every command is tried with arguments that have no effect, and every key of each place is given to a script that
    does not touch it. Redis records what it refuses in its ACL LOG.

    Args:
        gateway: connects as that user.
        places: whose keys are tried.
        is_cluster: whether the servers are nodes of a cluster.
    """
    some = list(places) or [Place("doctor")]
    where, found = gateway.server, _try_sent(gateway, _spare(_keys(some[0])))
    usable: list[QueueKeys] = []
    denied: list[Finding] = []
    if not {"evalsha", "eval"} & found.keys():
        usable, denied = _try_keys(gateway, some)
        found |= _try_called(gateway, usable[:_MOST_PLACES])
    missing = [name for name in (*SENT, *IN_SCRIPTS) if found.get(name) == "right"]
    if missing:
        yield error(
            "rights",
            where,
            f"this user may not use {', '.join(missing)}; every queue needs {'it' if len(missing) == 1 else 'them'}",
            f"ACL SETUSER … {_rule(missing)}; docs/access.md has the whole rule",
        )
    if unknown := [name for name in (*SENT, *IN_SCRIPTS) if found.get(name) == "unknown"]:
        yield error(
            "rights",
            where,
            f"the server does not know {', '.join(unknown)}: it is too old, or the commands are renamed or disabled",
            "use a server that has every command in docs/access.md",
        )
    yield from denied
    if not usable:
        yield could_not_look("rights", where, "no script can be called, so not every command was tried", "see above")
    optional = [finding for need in NEEDS if (finding := _lacking(need, found, where, places, is_cluster))]
    yield from optional
    if not (missing or unknown or denied or optional):
        yield ok("rights", where, "this user may use every command and key that is needed")


def _lacking(
    need: Need, found: Mapping[str, str], where: str, places: Sequence[Place], is_cluster: bool
) -> Finding | None:
    """Return the finding that a use is not possible, None if it is."""
    names = [name for name in (*need.sent, *need.called) if found.get(name) == "right"]
    if not names or (need is FOR_CLUSTER and not is_cluster):
        return None
    rule = error if need is FOR_CLUSTER or (need is FOR_STREAMS and any(place.stream for place in places)) else note
    return rule(
        "rights",
        where,
        f"this user may not use {', '.join(names)}, needed for {need.use}; without, {need.without}",
        f"ACL SETUSER … {_rule(names)}, if you need that",
    )


def _try_sent(gateway: RedisGateway, spare: bytes) -> dict[str, str]:
    """Return the commands that the client may not send to every server: "right", or "unknown"."""
    tried: dict[str, Sequence[str]] = {**SENT}
    for need in NEEDS:
        tried |= need.sent
    commands: list[tuple[Any, ...]] = [
        (*name.split("|"), *(spare if word == "@" else word for word in words)) for name, words in tried.items()
    ]
    found: dict[str, str] = {}
    for replies in gateway.ask(commands).values():
        found |= _refused(tried, [str(reply) if isinstance(reply, Exception) else "" for reply in replies])
    return found


def _try_called(gateway: RedisGateway, usable: Sequence[QueueKeys]) -> dict[str, str]:
    """Return the commands that scripts may not call, as `_try_sent` does."""
    tried: dict[str, Sequence[str]] = {}
    for need in NEEDS:
        tried |= need.called
    tried |= IN_SCRIPTS
    words = [(name, *arguments) for name, arguments in tried.items()]
    found: dict[str, str] = {}
    for answer in gateway.execute_many([probe_rights_call(_spare(keys), words) for keys in usable], retry=False):
        if not isinstance(answer, Exception):
            found |= _refused(tried, answer)
    return found


def _refused(tried: Arguments, errors: Sequence[str]) -> dict[str, str]:
    found = {}
    for name, text in zip(tried, errors, strict=True):
        if _NO_RIGHT.search(text):
            found[name] = "right"
        elif _UNKNOWN.search(text):
            found[name] = "unknown"
    return found


def _try_keys(gateway: RedisGateway, places: Sequence[Place]) -> tuple[list[QueueKeys], list[Finding]]:
    """Return the places whose keys can be used, and findings about the others."""
    usable, denied = [], []
    all_keys = [_keys(place) for place in places]
    answers = gateway.execute_many([_touch(*_named(keys).values()) for keys in all_keys], retry=False)
    for place, keys, answer in zip(places, all_keys, answers, strict=True):
        if not isinstance(answer, Exception):
            usable.append(keys)
            continue
        named = _named(keys)
        each = gateway.execute_many([_touch(key) for key in named.values()], retry=False)
        wrong = [name for name, reply in zip(named, each, strict=True) if isinstance(reply, Exception)]
        root = keys.counters.removesuffix(b"counters").decode(errors="replace")
        some = "none of its keys" if len(wrong) == len(named) else f"not its keys {', '.join(wrong)}"
        denied.append(
            error(
                "rights", str(place), f"this user may use {some}", f"ACL SETUSER … ~{root}*, or ~sluicegate:* for all"
            )
        )
    return usable, denied


def _touch(*keys: bytes) -> Call[object]:
    """Prepare a call that is given keys and does not touch them."""
    return Call(scripts.load("eviction"), keys, (), bool)


def _named(keys: QueueKeys) -> dict[str, bytes]:
    """Return a place's keys by the names of `docs/operations.md`, with an example of each kind that has many."""
    named = {key: getattr(keys, key) for key in EXAMINED}
    spare = b"doctor"
    named |= {
        "lease:*": keys.lease(spare),
        "closed:*": keys.closed(spare),
        "markers:*": keys.markers.locate([spare]).buckets[0],
    }
    return {**named, "published:*": keys.published(spare)}


def _spare(keys: QueueKeys) -> bytes:
    """Return a key of a place that nothing else uses."""
    return keys.published(new_id())


def _keys(place: Place) -> QueueKeys:
    return StreamKeys(place.name) if place.stream and place.group is None else keys_of(place)


def _rule(names: Sequence[str]) -> str:
    return " ".join(f"+{name}" for name in names)
