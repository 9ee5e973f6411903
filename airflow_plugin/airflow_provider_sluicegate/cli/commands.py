"""What the commands of ``airflow sluicegate`` do."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from airflow.cli.simple_table import AirflowConsole
from airflow.utils.cli import suppress_logs_and_warning

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.places import named_place, value_of

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer
    from sluicegate.place import Place

__all__ = ["depth", "pause", "peek", "purge", "redrive", "resume", "test_connection"]

_COUNTS = ("ready", "pending", "returned", "delayed", "in_flight", "expired", "dead", "paused")
_DETAILS = ("reason", "error_type", "verb", "lease_id", "deadline", "buried_at", "completed_at", "failed_at")

Rows = list[dict[str, Any]]


def _command(work: Callable[[RedisQueueHook, Namespace], Rows]) -> Callable[[Namespace], None]:
    """Make a command of a function that returns rows; an error ends the command with its text."""

    @wraps(work)
    def command(args: Namespace) -> None:
        with _explained(), RedisQueueHook(args.conn_id) as hook:
            # Names and payloads are data: their brackets are no markup.
            AirflowConsole(markup=False).print_as(data=work(hook, args), output=args.output)

    return suppress_logs_and_warning(command)


@contextmanager
def _explained() -> Iterator[None]:
    import redis

    from airflow_provider_sluicegate.compat import AirflowException
    from sluicegate.errors import RedisMessageQueueError

    # As for Airflow's own commands: connections are read from the database too.
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    try:
        yield
    except (RedisMessageQueueError, AirflowException, redis.RedisError, ValueError) as error:
        raise SystemExit(str(error)) from error


@_command
def depth(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Count the messages of queues by state."""
    if args.stream is not None and not args.group and not args.queue:
        args.group = hook.get_stream(args.stream).groups()
        if not args.group:
            raise SystemExit(f"stream {args.stream!r} has no group, so nothing is read from it yet")
    return [_depth_row(place, hook.open_place(place)) for place in _places(args)]


@_command
def peek(hook: RedisQueueHook, args: Namespace) -> Rows:
    """List messages without claiming them; payloads only on request."""
    entries = hook.open_place(_place(args)).peek(args.count, state=args.state)
    return [_message_row(entry, with_payload=args.payload) for entry in entries]


@_command
def redrive(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Move dead letters back to the queue."""
    place = _place(args)
    done = hook.open_place(place).redrive(
        reason=args.reason, older_than_seconds=args.older_than_seconds, limit=args.limit, dry_run=args.dry_run
    )
    counts = {"redriven": done.redriven, "blocked": done.blocked, "scanned": done.scanned}
    return [{**value_of(place), **counts, "dry_run": args.dry_run}]


@_command
def purge(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Delete messages, after a question."""
    from sluicegate.purging import count_states, states_of

    states = states_of(args.state, everything=args.everything)
    place = _place(args)
    queue = hook.open_place(place)
    counts = count_states(queue, states)
    if not args.dry_run:
        if not (args.yes or _is_confirmed(place, counts)):
            raise SystemExit("Nothing was deleted.")
        counts = {state: queue.purge(state) for state in states}
    return [
        {**value_of(place), "state": state, "deleted": count, "dry_run": args.dry_run}
        for state, count in counts.items()
    ]


@_command
def pause(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Stop claims from taking messages."""
    return [{**value_of(place), "paused": True, "changed": hook.open_place(place).pause()} for place in _places(args)]


@_command
def resume(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Let claims take messages again."""
    return [{**value_of(place), "paused": False, "changed": hook.open_place(place).resume()} for place in _places(args)]


@_command
def test_connection(hook: RedisQueueHook, args: Namespace) -> Rows:
    """Check a connection and describe the server."""
    works, text = hook.test_connection()
    if not works:
        raise SystemExit(text)
    return [{"connection": args.conn_id, "works": works, "server": text}]


def _place(args: Namespace) -> Place:
    """Return the queue or group that a command names."""
    return named_place(args.queue, args.stream, args.group, is_read=True)


def _places(args: Namespace) -> list[Place]:
    """Return the queues or groups that a command names."""
    if args.queue and args.stream is None and args.group is None:
        return [named_place(name) for name in args.queue]
    names = ", ".join(args.queue) or None
    return [named_place(names, args.stream, group, is_read=True) for group in args.group or (None,)]


def _depth_row(place: Place, queue: QueueConsumer) -> dict[str, Any]:
    found = queue.depth()
    age = found.oldest_ready_age_seconds
    return {**value_of(place), **{name: getattr(found, name) for name in _COUNTS}, "oldest_ready_age_seconds": age}


def _message_row(entry: Any, *, with_payload: bool) -> dict[str, Any]:
    """Return what is known of a message; errors may quote payloads, so they are payloads here."""
    message = entry.message if hasattr(entry, "message") else entry
    payload: bytes = entry.value if message is None else message.payload
    row = {
        "id": message and message.id,
        "enqueued_at": message and message.enqueued_at.isoformat(),
        "delivery_count": message and message.delivery_count,
        "bytes": len(payload),
        **{name: getattr(entry, name) for name in _DETAILS if hasattr(entry, name)},
    }
    if with_payload:
        row["headers"] = dict(message.headers) if message else {}
        row["payload"] = payload.decode(errors="backslashreplace")
        if hasattr(entry, "error"):
            row["error"] = entry.error
    return row


def _is_confirmed(place: Place, counts: dict[str, int]) -> bool:
    held = ", ".join(f"{count} {state}" for state, count in counts.items())
    try:
        return input(f"Delete {held} of {place}? Write yes: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
