"""Functions that a `defs.yaml` of a test names."""

from __future__ import annotations

import dagster as dg

from sluicegate import Message

NOT_A_FUNCTION = 1


def process(messages: list[Message]) -> None:
    """Take a batch, and do nothing with it."""


async def late(messages: list[Message]) -> None:
    """Do nothing, if awaited."""


drain_job = dg.define_asset_job("drain_job", selection="key:orders")
