"""Moves what other libraries have stored: redis-message-queue, Redis's job queue, and plain streams.

>>> migration = Migration(MessageQueueSource("orders"), "orders", source_gateway=gateway)   # doctest: +SKIP
>>> print(migration.plan())                                                                 # doctest: +SKIP
>>> migration.run()                                                                         # doctest: +SKIP
"""

from sluicegate.migrating.migration import Into, Migration, Part
from sluicegate.migrating.plan import MovedPart, MovePlan, MoveProgress, MoveReport, PlannedPart
from sluicegate.migrating.sources import InFlight, JobQueueSource, MessageQueueSource, Source, StreamSource

__all__ = [
    "InFlight",
    "Into",
    "JobQueueSource",
    "MessageQueueSource",
    "Migration",
    "MovePlan",
    "MoveProgress",
    "MoveReport",
    "MovedPart",
    "Part",
    "PlannedPart",
    "Source",
    "StreamSource",
]
