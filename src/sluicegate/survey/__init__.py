"""Finds the queues, streams, groups and queues of jobs on a Redis, and reads the state of many of them at once."""

from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.survey.directory import PlaceDirectory
from sluicegate.survey.found import FoundPlace, PlaceKind, find_places
from sluicegate.survey.snapshots import StreamSnapshot, read_snapshots

__all__ = [
    "FoundPlace",
    "PlaceDirectory",
    "PlaceKind",
    "Snapshot",
    "StreamSnapshot",
    "find_places",
    "read_snapshots",
]
