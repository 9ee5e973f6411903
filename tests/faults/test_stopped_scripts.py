"""A script that Redis stops in the middle loses nothing.

Writes that keep a message precede those that drop one, and a message is written before its marker. Here the script's
user may not use one of its commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate.core import scripts
from sluicegate.core.call import Call
from tests.faults import admin_cases, ending_cases, run_cases, tracking_cases
from tests.faults.test_repeats import (
    Prepare,
    ack_and_claim,
    ack_whole,
    adopt_with_a_foreign_value,
    claim_with_foreign_values,
    lease,
    promote,
    publish_delayed,
    publish_with_keys,
    reap,
    take_over,
)
from tests.support import markers, state
from tests.support.blocks import entries_of, packed
from tests.support.core_calls import Core, verdict
from tests.support.servers import RedisServer

READS = {
    "TIME", "EXISTS", "PTTL", "GET", "MGET", "STRLEN", "LLEN", "LRANGE", "LINDEX", "HLEN", "HGET", "HMGET", "HKEYS",
    "HEXISTS", "HSCAN", "SCAN", "SMISMEMBER", "ZCARD", "ZCOUNT", "ZSCORE", "ZRANGE", "ZRANGEBYSCORE",
    "XLEN", "XREVRANGE",
}  # fmt: skip


def settle(core: Core) -> Call[Any]:
    return core.settle("l", lease(core), verdict("nack", "1"), verdict("release", "2-3"), verdict("bury", "4"))


def settle_whole(core: Core) -> Call[Any]:
    return core.settle(
        "l", lease(core), verdict("nack", "1", delay_seconds=9), verdict("release", "2-5"), verdict("bury", "6")
    )


CASES: list[Prepare] = [
    publish_with_keys, publish_delayed, claim_with_foreign_values, take_over, adopt_with_a_foreign_value, ack_whole,
    ack_and_claim, settle, settle_whole, reap, promote,
]  # fmt: skip
CASES += [admin_cases.redrive, admin_cases.redrive_what_fits, *admin_cases.DELETING, *ending_cases.KEEPING]
CASES += [run_cases.claim_and_pass_by, admin_cases.repair_what_was_set_aside]
CASES += tracking_cases.KEEPING
CASES += admin_cases.CHANGING_BLOCKS


@contextmanager
def without(server: RedisServer, client: redis.Redis, command: str) -> Iterator[redis.Redis]:
    client.acl_setuser("limited", enabled=True, nopass=True, keys=["*"], commands=["+@all", f"-{command}"])
    with server.client(username="limited", password="any") as limited:
        yield limited
    client.acl_deluser("limited")


def is_stopped(core: Core, call: Call[Any]) -> bool:
    try:
        core.do(call)
    except redis.exceptions.ResponseError as error:
        return "permission" in str(error) or "can't run this command" in str(error)
    return False


def values(client: redis.Redis) -> set[bytes]:
    """Return what identifies everything that is stored: ids of messages, and foreign values as they are."""
    found = state.contents(client, "orders")
    return {identity(entry) for place in vars(found).values() for value in place for entry in entries_of(value)}


def orphans(client: redis.Redis, core: Core, call: Call[Any]) -> set[bytes]:
    """Return the owners of markers that the call names, where these are in no place that `values` reads."""
    at = call.script.header.args.index("fields") if "fields" in call.script.header.args else None
    named = set() if at is None else set(bytes(call.args[at]).split(b"\0"))
    return {owner for field, owner in markers.held(client, core.keys).items() if field in named} - values(client)


def identity(value: bytes) -> bytes:
    return re.sub(rb"^[125678][0-9a-f]{28}([^\x1f]+)\x1f.*$", rb"\1", value, flags=re.DOTALL)


def named_for_deletion(prepare: Prepare, call: Call[Any]) -> set[bytes]:
    if prepare is ack_whole:
        return {f"b-{at}".encode() for at in range(6)}
    if prepare is ack_and_claim:
        return {b"b-0"}
    if prepare is admin_cases.drop_from_blocks:
        return {b"b-9", b"b-10", b"b-11", *(b"c-%d" % number for number in range(9))}
    deleting = prepare in (*admin_cases.DELETING, *admin_cases.DELETING_BLOCKS)
    return {identity(arg) for arg in call.args if isinstance(arg, bytes)} if deleting else set()


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
def test_a_script_that_is_stopped_loses_nothing(
    server: RedisServer, bare_client: redis.Redis, prepare: Prepare
) -> None:
    stopped = []
    for command in writes_of(prepare, bare_client):
        bare_client.flushall()
        core = Core(bare_client)
        call = prepare(core)
        before = values(bare_client)
        free = orphans(bare_client, core, call)
        with without(server, bare_client, command) as limited:
            stopped += [command] if is_stopped(Core(limited), call) else []
        gone = before - values(bare_client) - named_for_deletion(prepare, call)
        assert not gone, f"without {command.upper()} a message is gone"
        real = packed(bare_client.lrange(core.keys.pending, 0, -1)) if not core.keys.group else 0
        counted = int(bare_client.hget(core.keys.counters, "packed") or 0)
        assert counted >= real, f"without {command.upper()} the depth is too low"
        assert orphans(bare_client, core, call) <= free, f"without {command.upper()} a key is orphaned"
    assert len(stopped) >= 2


def writes_of(prepare: Prepare, client: redis.Redis) -> list[str]:
    client.flushall()
    text = prepare(Core(client)).script.text.decode()
    return sorted({name.lower() for name in re.findall(r"redis\.call\('(\w+)'", text) if name not in READS})


def test_every_script_that_writes_messages_is_among_them(bare_client: redis.Redis) -> None:
    stopped = set()
    for prepare in CASES:
        bare_client.flushall()
        stopped.add(prepare(Core(bare_client)).script.name)
    assert stopped == set(scripts.NAMES) - {
        "batch",
        "browse_group",
        "cancel_job",
        "depth",
        "ended",
        "eviction",
        "examine",
        "probe_rights",
        "in_flight",
        "keep_driver",
        "keep_jobs",
        "list_jobs",
        "conclude",
        "manifest",
        "peek",
        "peek_jobs",
        "update_job",
        "extend",
        "acquire_consumer",
        "recount_in_flight",
        "repair_leases",
        "commit_write",
        "remember_returned",
        "scan",
        "stage_rows",
        "stats",
        "pause",
        "forget",
        "cancel_in_stream",
        "peek_in_stream",
        "create_group",
        "delete_group",
        "keep_group",
        "publish_to_stream",
        "replay",
        "stream_info",
        "trim",
        "wake_groups",
        *("adopt", "expire_leases", "find_unread", "foreign_pending", "purge_unread"),
    }
