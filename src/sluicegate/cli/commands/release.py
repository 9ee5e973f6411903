"""Returns messages of a lease that were not worked on."""

from __future__ import annotations

from sluicegate.cli.context import Cli
from sluicegate.cli.leases import Ids, LeaseText, settle

__all__ = ["release"]


def release(cli: Cli, lease: LeaseText, ids: Ids = None) -> int:
    """Return messages of a lease that were not worked on; up to three times that counts as no delivery."""
    return settle(cli, lease, ids, "release", lambda held, messages: held.release(messages))
