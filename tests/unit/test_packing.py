"""Commands are packed as redis-py packs them."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from sluicegate._redis import connection_io
from sluicegate._redis.asyncio import connection_io as async_connection_io

ARGUMENTS = st.binary(max_size=20) | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
COMMANDS = st.lists(st.builds(lambda rest: ("EVALSHA", *rest), st.lists(ARGUMENTS, max_size=9)), min_size=1, max_size=3)


@pytest.mark.parametrize("module", [connection_io, async_connection_io], ids=["sync", "asyncio"])
@given(commands=COMMANDS)
def test_the_bytes_are_those_of_redis_py(module: Any, commands: list[Any]) -> None:
    connection = redis.Connection()
    assert b"".join(module.packed(commands)) == b"".join(connection.pack_commands(commands))
    assert b"".join(module.packed([("BLPOP", b"k", 0.25)])) == b"".join(connection.pack_command("BLPOP", b"k", 0.25))
