"""The commands of ``airflow sluicegate``; what they do is imported when one runs."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import (
    ARG_OUTPUT,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    GroupCommand,
    lazy_load_command,
)

__all__ = ["get_cli_commands"]


def _argument(name: str, text: str, **options: Any) -> Arg:
    return Arg((name,), help=text, **options)  # type: ignore[no-untyped-call]


_STATES = "pending, returned, delayed, dead, completed or failed"
_QUEUE = _argument("queue", "The name of the queue; leave it out with --stream and --group", nargs="?")
_QUEUES = _argument("queue", "The names of the queues; leave them out with --stream and --group", nargs="*")
_STREAM = _argument("--stream", "The name of a stream, instead of a queue")
_GROUP = _argument("--group", "The name of a group of the stream")
_GROUPS = _argument("--group", "The name of a group of the stream; repeat the option for several", action="append")
_ONE, _SEVERAL = (_QUEUE, _STREAM, _GROUP), (_QUEUES, _STREAM, _GROUPS)
_CONNECTION = _argument(
    "--conn-id", "The Airflow connection (default: sluicegate_default)", default="sluicegate_default"
)
_DRY_RUN = _argument("--dry-run", "Change nothing, and count what would be changed", action="store_true")
_PEEKED_STATE = _argument("--state", f"{_STATES}, or in_flight (default: pending)", default="pending")
_PURGED_STATE = _argument("--state", f"{_STATES}; repeat the option for several", action="append")
_EVERYTHING = _argument("--everything", "All six states", action="store_true")
_COUNT = _argument("--count", "The most messages (default: 10)", type=int, default=10)
_PAYLOAD = _argument("--payload", "Show payloads, headers and the texts of errors too", action="store_true")
_LIMIT = _argument("--limit", "The most dead letters (default: all)", type=int)
_REASON = _argument("--reason", "Only those buried for this reason, such as max_delivery_count")
_AGE = _argument("--older-than-seconds", "Only those buried at least this long ago", type=float)


def get_cli_commands() -> list[GroupCommand]:
    """Return the group of commands; Airflow calls this from version 3.2 on."""
    return [
        GroupCommand(
            name="sluicegate",
            help="Inspect and administer Sluicegate queues, and groups of streams",
            subcommands=(
                _command("depth", "Count messages by state; with --stream alone, of each of its groups", *_SEVERAL),
                _command("peek", "List messages without claiming them", *_ONE, _PEEKED_STATE, _COUNT, _PAYLOAD),
                _command("redrive", "Move dead letters back to the queue", *_ONE, _REASON, _AGE, _LIMIT, _DRY_RUN),
                _command("purge", "Delete messages", *_ONE, _PURGED_STATE, _EVERYTHING, _DRY_RUN, ARG_YES),
                _command("pause", "Stop claims from taking messages", *_SEVERAL),
                _command("resume", "Let claims take messages again", *_SEVERAL),
                _command("test-connection", "Check a connection and describe the server"),
            ),
        )
    ]


def _command(name: str, text: str, *arguments: Arg) -> ActionCommand:
    function = f"airflow_provider_sluicegate.cli.commands.{name.replace('-', '_')}"
    return ActionCommand(name, text, lazy_load_command(function), (*arguments, _CONNECTION, ARG_OUTPUT, ARG_VERBOSE))
