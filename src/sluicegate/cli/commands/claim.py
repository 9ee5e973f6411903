"""Leases messages for a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.messages import message_record, payload_text
from sluicegate.cli.output import to_json
from sluicegate.cli.parsing import Start, parse_seconds, start_of
from sluicegate.cli.places import Target
from sluicegate.cli.text import counted, duration, shown
from sluicegate.errors import ConfigurationError

__all__ = ["claim"]


def claim(
    cli: Cli,
    target: Target,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The most messages.")] = 1,
    lease: Annotated[
        float,
        typer.Option(parser=parse_seconds, metavar="DURATION", help="How long the lease lives; `extend` moves it."),
    ] = 300,
    wait: Annotated[
        float, typer.Option(parser=parse_seconds, metavar="DURATION", help="How long to wait for a first message.")
    ] = 0,
    lease_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="A name that a repeat uses again, to get the same messages.", show_default=False
        ),
    ] = None,
    take_over_after: Annotated[
        float | None,
        typer.Option(
            parser=parse_seconds,
            metavar="DURATION",
            help="Take the lease of that name over once its holder was silent for so long.",
            show_default=False,
        ),
    ] = None,
    lease_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the lease there, and print one payload per line.", show_default=False),
    ] = None,
    start: Start = None,
) -> int:
    """Lease messages, for a script that settles them later by `ack`, `nack`, `release` or `bury`.

    With --json, one object has the lease and the messages; those commands take it as it is. The exit code is 1 when
    there is nothing to claim. Nothing extends the lease but `extend`; messages that are not settled in time are
    delivered again.
    """
    if not cli.output.as_json and lease_file is None:
        raise ConfigurationError("add --json, or --lease-file FILE: without the lease, nothing could be settled")
    queue = target.consumer(**start_of(target, start))
    claimed = queue.claim(
        limit,
        lease_seconds=lease,
        wait_seconds=wait,
        lease_id=lease_id,
        take_over_after_seconds=take_over_after,
        heartbeat=False,
    )
    if not claimed:
        state = claimed.state.value
        cli.output.show({**target.identity(), "state": state, "lease": None, "messages": []})
        cli.output.note(f"{target}: nothing was claimed ({state})")
        return ExitCode.FINDING
    messages = [message_record(message) for message in claimed.messages]
    payloads = [message.payload for message in claimed.messages]
    state, handle = claimed.state.value, claimed.detach()
    record = {**target.identity(), "state": state, "lease": handle.to_dict(), "messages": messages}
    if lease_file is not None:
        text = to_json({**record, "messages": [one["id"] for one in messages]})
        try:
            lease_file.write_text(f"{text}\n", encoding="utf-8")
        except OSError:  # nothing could settle them before the lease expires
            queue.attach(handle, heartbeat=False).release()
            raise
    if cli.output.as_json:
        cli.output.record(record)
    else:
        for payload in payloads:
            text = payload_text(payload)
            sys.stdout.write(f"{shown(text) if sys.stdout.isatty() else text}\n")
        cli.output.note(f"{counted(len(messages), 'message')} for {duration(lease)}; the lease is in {lease_file}")
    return ExitCode.DONE
