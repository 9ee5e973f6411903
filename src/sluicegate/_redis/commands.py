"""The commands that are sent for a call."""

from __future__ import annotations

from typing import Any

from sluicegate.core.call import Call

__all__ = ["ASKING", "WAIT_MARGIN_SECONDS", "Command", "commands", "reply_seconds"]

Command = tuple[bytes | int | str | float, ...]
ASKING: tuple[Command, ...] = (("ASKING",),)
WAIT_MARGIN_SECONDS = 5.0  # how much later than requested the reply to a blocking command may arrive


def commands(call: Call[Any], *, text: bool = False) -> list[Command]:
    """Return the commands of a call: the script by its hash or by its text, then the call's `then`."""
    name, script = ("EVAL", call.script.text) if text else ("EVALSHA", call.script.sha)
    sent: list[Command] = [(name, script, len(call.keys), *call.keys, *call.args)]
    if call.then:
        sent.append(call.then)
    return sent


def reply_seconds(call: Call[Any]) -> float | None:
    """Return how long the reply to `then` may take, None without one; WAIT and WAITAOF end in their timeout."""
    return int(call.then[-1]) / 1000 + WAIT_MARGIN_SECONDS if call.then else None
