"""The `durability` argument of a publish."""

from __future__ import annotations

import select
import socket
from typing import Any

import pytest

from sluicegate._gateway_base import reply_seconds
from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.durability import FSYNC, MEMORY, Durability, parse_durability, replicated
from sluicegate.errors import ConfigurationError


def test_what_may_be_given() -> None:
    assert parse_durability("memory") is MEMORY
    assert parse_durability("fsync") is FSYNC
    assert parse_durability(replicated(2, 3)) == Durability("replicated", 2, 3.0)
    assert replicated(1) == replicated(1, timeout_seconds=1.0)


@pytest.mark.parametrize("value", ["replicated", "replicated(2)", replicated])
def test_replicas_need_a_number(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"durability=replicated\(1\)"):
        parse_durability(value)


@pytest.mark.parametrize("value", ["disk", "", None, True, 1, {"kind": "fsync"}])
def test_anything_else(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must be 'memory', 'fsync' or replicated\(n\), not "):
        parse_durability(value)


@pytest.mark.parametrize("replicas", [0, -1, True, 1.0, "1", None, 1001])
def test_replicas_that_are_no_number_of_them(replicas: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"from 1 to 1000, not {replicas!r}"):
        replicated(replicas)


@pytest.mark.parametrize("seconds", [0, -1, True, "1", None, 86_401, 1e300, float("inf"), float("nan")])
def test_a_timeout_has_an_end(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout_seconds as a number of seconds above 0"):
        replicated(1, seconds)


def test_a_client_can_poll_for_as_long_as_the_longest_timeout() -> None:
    waiting = Call(scripts.load("stats"), (), (), int, then=replicated(1, 86_400).command())
    seconds = reply_seconds(waiting)
    assert seconds is not None
    assert seconds > 86_400
    here, there = socket.socketpair()
    with here, there:
        there.send(b"x")
        poll = select.poll()
        poll.register(here, select.POLLIN)
        assert len(poll.poll(seconds * 1000)) == 1


@pytest.mark.parametrize(
    ("durability", "command"),
    [
        (MEMORY, ()),
        (FSYNC, (b"WAITAOF", 1, 0, 5000)),
        (replicated(3, 0.5), (b"WAIT", 3, 500)),
        (replicated(1, 0.0001), (b"WAIT", 1, 1)),
    ],
)
def test_the_command_behind_the_script(durability: Durability, command: tuple[bytes | int, ...]) -> None:
    assert durability.command() == command


@pytest.mark.parametrize(
    ("durability", "reply", "confirmed"),
    [
        (MEMORY, None, True),
        (FSYNC, [1, 0], True),
        (FSYNC, [0, 2], False),
        (FSYNC, RuntimeError("unknown command"), False),
        (replicated(2), 2, True),
        (replicated(2), 3, True),
        (replicated(2), 1, False),
        (replicated(2), RuntimeError("no"), False),
    ],
)
def test_what_counts_as_confirmed(durability: Durability, reply: Any, confirmed: bool) -> None:
    assert durability.confirmed(reply) is confirmed


def test_a_shortfall_says_what_is_missing() -> None:
    assert replicated(2).shortfall(1).startswith("1 of 2 replicas had it within 1 s; ")
    assert FSYNC.shortfall([0, 0]).startswith("it was not on disk within 5 s; ")
    assert FSYNC.shortfall(RuntimeError("ERR unknown")).startswith("Redis answered WAITAOF with: ERR unknown; ")
