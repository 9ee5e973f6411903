"""The rules about one server: version, eviction, persistence, replicas, memory, connections, clock."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.doctor.finding import Finding, could_not_look, error, note, ok, warning
from sluicegate.doctor.server_facts import ServerFacts, parse_pairs
from sluicegate.doctor.units import count, duration, size

__all__ = [
    "check_clock",
    "check_connections",
    "check_eviction",
    "check_memory",
    "check_persistence",
    "check_replay",
    "check_replicas",
]

_GRANT_INFO = "grant this user +info, or ask whoever runs the server"
_GRANT_CONFIG = "grant this user +config|get, or look at the settings of the hosted service"
_OLD_REPLICA_SECONDS = 10
_SHORT_TIMEOUT_SECONDS = 60
_CLOCK_SECONDS = 2.0


def check_eviction(facts: ServerFacts) -> Iterator[Finding]:
    """Yield whether the server deletes keys when it is full, and whether it has done so."""
    policy = facts.info.get("maxmemory_policy") or facts.config.get("maxmemory-policy")
    evicted, limit = facts.number("evicted_keys"), _max_memory(facts)
    if evicted:
        yield error(
            "eviction",
            facts.server,
            f"{count(evicted, 'key')} evicted since the server started: messages, markers or leases may be among them",
            "CONFIG SET maxmemory-policy noeviction, give the server more maxmemory, and run repair on each queue",
        )
    if policy is None:
        yield could_not_look("eviction", facts.server, "the server does not show maxmemory-policy", _GRANT_INFO)
    elif policy == "noeviction":
        yield ok("eviction", facts.server, "maxmemory-policy is noeviction: nothing is deleted when memory is full")
    else:
        rule = warning if limit == 0 else error
        when = "once maxmemory is set" if limit == 0 else "when memory is full"
        yield rule(
            "eviction",
            facts.server,
            f"maxmemory-policy is {policy}: {when}, Redis deletes messages, markers and leases without notice",
            "CONFIG SET maxmemory-policy noeviction, or the setting of that name where the server is hosted; use "
            "another Redis for caches",
        )


def check_persistence(facts: ServerFacts) -> Iterator[Finding]:
    """Yield what a restart of the server loses, and whether it can save its data now."""
    if facts.number("loading"):
        yield error("persistence", facts.server, "the server is reading its data and refuses calls", "wait for it")
    yield from _failed_saves(facts)
    appends = facts.info.get("aof_enabled")
    if appends is None:
        yield could_not_look("persistence", facts.server, "the server does not show what it saves", _GRANT_INFO)
    elif appends == "1":
        yield _append_only(facts)
    else:
        yield _snapshots(facts)


def check_replay(facts: ServerFacts) -> Iterator[Finding]:
    """Yield whether a restart can replay what scripts wrote: Redis does that with the rights of the user `default`.

    Redis 7.0.15 and 8.2.3 skip what that user may not do, and start; 6.2.14 does not look at its rights.
    """
    rights = facts.default_rights.split()
    is_old = facts.info.get("redis_version", "").startswith("6.")
    if facts.info.get("aof_enabled") != "1" or not rights or is_old:
        return
    if "+@all" not in rights or not {"~*", "*"} & set(rights):
        yield error(
            "replay",
            facts.server,
            "the user `default` lacks rights, with which Redis replays its append-only file: after a restart the "
            "messages of every queue are gone",
            "ACL SETUSER default off ~* &* +@all, and save that in the file of the users; a user that is off cannot "
            "log in",
        )


def check_replicas(facts: ServerFacts) -> Iterator[Finding]:
    """Yield whether writes are accepted here, and what a failover would lose."""
    role = facts.info.get("role")
    if role is None:
        yield could_not_look("replication", facts.server, "the server does not show its role", _GRANT_INFO)
        return
    if role != "master":
        yield error(
            "replication",
            facts.server,
            "it is a replica: every publish, claim and verdict is refused (READONLY)",
            "connect to the primary, through Sentinel or the cluster where there is one",
        )
        return
    wanted, good = facts.setting("min-replicas-to-write"), facts.number("min_slaves_good_slaves")
    if wanted and good is not None and good < wanted:
        yield error(
            "replication",
            facts.server,
            f"{good} of the {wanted} replicas that min-replicas-to-write demands are in step: writes are refused "
            "(NOREPLICAS)",
            "bring the replicas back, or lower min-replicas-to-write",
        )
    replicas = [parse_pairs(value) for name, value in facts.info.items() if _is_replica(name)]
    if not replicas:
        yield note(
            "replication",
            facts.server,
            "it has no replica: while its host is down, nothing can be published or claimed",
            "add a replica and Sentinel, or accept waits as long as a restart takes",
        )
        return
    yield from _replicas(facts, replicas, wanted)


def check_memory(facts: ServerFacts) -> Iterator[Finding]:
    """Yield how much room there is."""
    used, limit = facts.number("used_memory"), _max_memory(facts)
    if used is None:
        yield could_not_look("memory", facts.server, "the server does not show its memory", _GRANT_INFO)
        return
    if not limit:
        total = facts.number("total_system_memory")
        of = f" of the host's {size(total)}" if total else ""
        is_much = bool(total) and used > 0.6 * (total or 1)
        yield (warning if is_much else note)(
            "memory",
            facts.server,
            f"{size(used)}{of} are used and maxmemory is not set: a backlog grows until the kernel kills the server",
            "set maxmemory to about 60 % of the host's memory, with noeviction: then publishes are refused, and "
            "everything else continues",
        )
        return
    share = used / limit
    what = f"{size(used)} of maxmemory {size(limit)} are used ({share:.0%})"
    advice = "drain the queues, purge what is not needed, or raise maxmemory; at the limit publishes are refused"
    if share >= 0.95:
        yield error("memory", facts.server, what, advice)
    elif share >= 0.75:
        yield warning("memory", facts.server, what, advice)
    else:
        yield ok("memory", facts.server, what)


def check_connections(facts: ServerFacts) -> Iterator[Finding]:
    """Yield whether clients can connect, and stay connected."""
    limit = facts.number("maxclients") or facts.setting("maxclients")
    used, rejected = facts.number("connected_clients"), facts.number("rejected_connections")
    advice = "raise maxclients, or close queue objects that are not used; a worker holds up to two connections"
    if limit and used is not None:
        what = f"{used:,} of {limit:,} connections are in use"
        yield (
            warning("connections", facts.server, what, advice)
            if used > 0.8 * limit
            else ok("connections", facts.server, what)
        )
    elif used is None:
        yield could_not_look("connections", facts.server, "the server does not show its clients", _GRANT_INFO)
    if rejected:
        yield warning(
            "connections", facts.server, f"{count(rejected, 'connection')} refused since the server started", advice
        )
    timeout = facts.setting("timeout")
    if timeout and timeout < _SHORT_TIMEOUT_SECONDS:
        yield warning(
            "timeout",
            facts.server,
            f"timeout is {timeout} s: the server closes connections that are idle for longer, and the next call of "
            "each must be sent twice",
            "CONFIG SET timeout 0, or 300 and more; tcp-keepalive finds dead clients",
        )


def check_clock(facts: ServerFacts) -> Iterator[Finding]:
    """Yield how far the server's clock is from this machine's."""
    if facts.clock_offset is None:
        why = facts.refused.get("TIME", "the server does not show its time")
        yield could_not_look("clock", facts.server, why, "grant this user +time, which every script needs")
        return
    away = max(0.0, abs(facts.clock_offset) - facts.clock_error)
    direction = "ahead of" if facts.clock_offset > 0 else "behind"
    if away > _CLOCK_SECONDS:
        yield warning(
            "clock",
            facts.server,
            f"its clock is {duration(away)} {direction} this machine's: due_at, and ages that a client computes, are "
            "wrong by that much; leases are not, since their time is the server's",
            "synchronize both by NTP",
        )
    else:
        yield ok(
            "clock",
            facts.server,
            f"its clock agrees with this machine's to {duration(max(0.001, away + facts.clock_error))}",
        )


def _max_memory(facts: ServerFacts) -> int | None:
    limit = facts.number("maxmemory")
    return facts.setting("maxmemory") if limit is None else limit


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name[5:].isdigit()


def _failed_saves(facts: ServerFacts) -> Iterator[Finding]:
    advice = "give the server room on its disk and the right to write there; its log has the reason"
    if facts.info.get("aof_last_write_status") == "err":
        yield error(
            "persistence",
            facts.server,
            "the last write to the append-only file failed: publishes, claims and verdicts are refused (MISCONF)",
            advice,
        )
    if facts.info.get("rdb_last_bgsave_status") == "err":
        stops = facts.config.get("stop-writes-on-bgsave-error", "yes") == "yes" and facts.config.get("save", "x") != ""
        effect = "publishes, claims and verdicts are refused (MISCONF)" if stops else "the snapshot is an older one"
        yield (error if stops else warning)("persistence", facts.server, f"the last BGSAVE failed: {effect}", advice)
    if facts.info.get("aof_last_bgrewrite_status") == "err":
        yield warning("persistence", facts.server, "the last rewrite of the append-only file failed: it grows", advice)


def _append_only(facts: ServerFacts) -> Finding:
    fsync = facts.config.get("appendfsync")
    if fsync is None:
        return could_not_look("persistence", facts.server, "appendonly is on; appendfsync is not shown", _GRANT_CONFIG)
    if fsync == "no":
        return warning(
            "persistence",
            facts.server,
            "appendonly is on with appendfsync no: a power failure loses what the kernel had not written, often 30 s",
            "CONFIG SET appendfsync everysec",
        )
    lost = "nothing that was acknowledged" if fsync == "always" else "about the last two seconds"
    return ok("persistence", facts.server, f"appendonly is on with appendfsync {fsync}: a power failure loses {lost}")


def _snapshots(facts: ServerFacts) -> Finding:
    advice = "CONFIG SET appendonly yes, and in the server's configuration file, so that a restart keeps it"
    saves = facts.config.get("save")
    if saves is None:
        return could_not_look(
            "persistence", facts.server, "appendonly is off; the times of snapshots are not shown", _GRANT_CONFIG
        )
    if saves == "":
        return warning(
            "persistence", facts.server, "nothing is saved: a restart of the server loses every message", advice
        )
    return warning(
        "persistence",
        facts.server,
        f"only snapshots are saved (save {saves}): a crash of the server loses everything since the last one",
        advice,
    )


def _replicas(facts: ServerFacts, replicas: list[dict[str, str]], wanted: int | None) -> Iterator[Finding]:
    behind = [one for one in replicas if not _is_in_step(one)]
    for one in behind:
        yield warning(
            "replication",
            facts.server,
            f"replica {one.get('ip')}:{one.get('port')} is {one.get('state')} and answered {one.get('lag')} s ago: a "
            "failover to it loses what it lacks",
            "look at the replica's log, its network and its repl-backlog-size",
        )
    if wanted == 0:
        yield warning(
            "replication",
            facts.server,
            f"{count(len(replicas), 'replica')} and min-replicas-to-write 0: a primary that is cut off accepts writes "
            "that the failover discards",
            "CONFIG SET min-replicas-to-write 1",
        )
    if not behind:
        yield ok("replication", facts.server, f"{count(len(replicas), 'replica')} in step")


def _is_in_step(replica: dict[str, str]) -> bool:
    lag = replica.get("lag", "")
    return replica.get("state") == "online" and (not lag.isdigit() or int(lag) <= _OLD_REPLICA_SECONDS)
