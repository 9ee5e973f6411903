"""A script of a group that Redis stops in the middle loses no message: see `test_stopped_scripts`."""

from __future__ import annotations

import pytest
import redis

from tests.faults import group_cases
from tests.faults.group_cases import KEYS
from tests.faults.test_repeats import Prepare
from tests.faults.test_stopped_scripts import identity, is_stopped, without, writes_of
from tests.support import state
from tests.support.core_calls import Core
from tests.support.servers import RedisServer

CASES = [
    group_cases.claim, group_cases.adopt, group_cases.expire_leases, group_cases.promote, group_cases.redrive,
    group_cases.reap_a_poison_message,
]  # fmt: skip


def held(client: redis.Redis) -> set[bytes]:
    """Return ids of what the group has or will get: unread, in Redis's list of pending entries, or copied."""
    places = vars(state.read(client, KEYS.leases.removesuffix(b"leases"))) | {"pending": state.unread(client, KEYS)}
    listed = {one["message_id"] for one in client.xpending_range(KEYS.stream, KEYS.group, "-", "+", 100)}
    exist = {one for one, _ in client.xrange(KEYS.stream)}
    return {identity(value) for values in places.values() for value in values} | listed & exist


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
def test_a_script_of_a_group_that_is_stopped_loses_nothing(
    server: RedisServer, bare_client: redis.Redis, prepare: Prepare
) -> None:
    stopped = []
    for command in writes_of(prepare, bare_client):
        bare_client.flushall()
        call = prepare(Core(bare_client))
        before = held(bare_client)
        with without(server, bare_client, command) as limited:
            stopped += [command] if is_stopped(Core(limited), call) else []
        assert not before - held(bare_client), f"without {command.upper()} a message is gone"
    assert len(stopped) >= 2
