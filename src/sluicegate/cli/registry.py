"""The commands by name: a command's module is imported when the command runs, so that `--help` stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COMMANDS", "Listed", "Section"]

Section = Literal["Publish and consume", "Look", "Administer", "Run"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A command, as the overview of all commands shows it.

    Attributes:
        name: what people type.
        section: of the overview.
        help: one line about it.
        module: the module in `sluicegate.cli.commands`; by default the name, with `_` for `-`. It has either a function
            of that name (`list` is `list_`), whose first parameter is a `Cli`, or, for a command with subcommands,
            `COMMANDS`: their functions by name.
    """

    name: str
    section: Section
    help: str
    module: str = ""


COMMANDS = (
    Listed("publish", "Publish and consume", "Publish messages from files or stdin, without duplicates."),
    Listed("claim", "Publish and consume", "Lease messages, for a script that settles them later."),
    Listed("ack", "Publish and consume", "Settle messages of a lease as done."),
    Listed("nack", "Publish and consume", "Return failed messages of a lease; the delivery counts."),
    Listed("release", "Publish and consume", "Return messages of a lease that were not worked on."),
    Listed("bury", "Publish and consume", "Turn messages of a lease into dead letters."),
    Listed("extend", "Publish and consume", "Move the deadline of a lease."),
    Listed("drain", "Publish and consume", "Run a program for each message or batch until the queue is empty."),
    Listed("depth", "Look", "Count the messages of queues and groups by state."),
    Listed("stats", "Look", "Show the totals since a queue exists."),
    Listed("queues", "Look", "Find all queues, streams, groups and queues of jobs."),
    Listed("watch", "Look", "Show queues live, with sparklines and rates."),
    Listed("peek", "Look", "Show messages without claiming them."),
    Listed("leases", "Look", "Show which consumers hold messages, and until when."),
    Listed("dead", "Administer", "List, show, redrive or purge dead letters."),
    Listed("jobs", "Administer", "List, show or cancel jobs."),
    Listed("pause", "Administer", "Stop all claims from taking new messages."),
    Listed("resume", "Administer", "Let claims take messages again."),
    Listed("cancel", "Administer", "Delete waiting messages by id."),
    Listed("purge", "Administer", "Delete everything that is in a state."),
    Listed("repair", "Administer", "Repair counts and indexes that another program damaged."),
    Listed("migrate", "Administer", "Move what other libraries have stored into a queue or stream."),
    Listed("doctor", "Administer", "Examine Redis and its queues, and say what to do."),
    Listed("worker", "Run", "Run a worker of yours until a signal stops it."),
    Listed("health", "Run", "Check for a probe that Redis answers and limits are kept."),
    Listed("ui", "Run", "Serve the web page."),
    Listed("exporter", "Run", "Serve metrics for Prometheus."),
    Listed("embedded", "Run", "Start, stop and look at the server of a folder."),
    Listed("bench", "Run", "Measure publish, claim and ack on your server."),
)
