# Made from src/sluicegate/asyncio/streams/__init__.py by `make format`; edit there.
"""A stream has one publish, several independent groups of consumers, and a history to replay."""

from sluicegate.core.transitions.group_pending import GroupConsumer, PendingMessage, PendingSummary
from sluicegate.core.transitions.trim import TrimReport
from sluicegate.report import GroupInfo, StreamInfo
from sluicegate.streams.group import ConsumerGroup, GroupOptions
from sluicegate.streams.stream import RedisStreamQueue

__all__ = [
    "ConsumerGroup",
    "GroupConsumer",
    "GroupInfo",
    "GroupOptions",
    "PendingMessage",
    "PendingSummary",
    "RedisStreamQueue",
    "StreamInfo",
    "TrimReport",
]
