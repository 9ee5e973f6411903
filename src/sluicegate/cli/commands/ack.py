"""Settles messages of a lease as done."""

from __future__ import annotations

from sluicegate.cli.context import Cli
from sluicegate.cli.leases import Ids, LeaseText, settle

__all__ = ["ack"]


def ack(cli: Cli, lease: LeaseText, ids: Ids = None) -> int:
    """Settle messages of a lease as done.

    A repeat is harmless. The exit code is 5 when the lease has expired or another consumer has it.
    """
    return settle(cli, lease, ids, "ack", lambda held, messages: held.ack(messages))
