"""Batches as the sensor and the publish assets know them: the name of their id in metadata, and their counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from dagster_sluicegate.depths import Located
from dagster_sluicegate.urls import impatient_url
from sluicegate import BatchStatus, RedisGateway
from sluicegate.core.keys import QueueKeys
from sluicegate.core.tracking import batch_name
from sluicegate.core.transitions.batches import batch_call
from sluicegate.errors import RedisMessageQueueError

__all__ = ["BATCH_ID", "batch_id_of", "read_batches"]

_MOST_SHOWN = 500

BATCH_ID = "sluicegate/batch_id"
"""The metadata of a materialization, and the tag of a run, that name a batch."""


def batch_id_of(work: str) -> str:
    """Return the id of the batch of a step, which its retries and the re-executions of its run share.

    Args:
        work: the name of what the step publishes; see `work_name`.
    """
    run, path, partitions, mapping_key = json.loads(work)
    name = " ".join(part for part in (run, "/".join(path), ", ".join(partitions), mapping_key) if part)
    # Two works never share an id, whatever characters their names have.
    mark = hashlib.sha256(work.encode()).hexdigest()[:8]
    return f"{name[:_MOST_SHOWN]} {mark}"


def read_batches(where: Located, ids: Sequence[str]) -> dict[str, BatchStatus]:
    """Read the counts of many batches of a queue in one write, without retries.

    Args:
        where: the queue is.
        ids: of the batches.

    Raises:
        ConfigurationError: an id that no batch may have.
        RedisUnavailableError: Redis cannot be reached; names host and port.
    """
    keys = QueueKeys(where.place.name)
    calls = [batch_call(keys, "status", batch_name(batch_id)) for batch_id in ids]
    gateway = RedisGateway(url=impatient_url(where.url), retry_budget_seconds=0)
    try:
        answers = gateway.execute_many(calls, retry=False)
    finally:
        gateway.close()
    for answer in answers:
        if isinstance(answer, RedisMessageQueueError):
            raise answer.locate(queue=where.place.name, operation="batch")
    return {batch_id: BatchStatus.of(batch_id, counts) for batch_id, counts in zip(ids, answers, strict=True)}
