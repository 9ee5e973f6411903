"""A stream has one publish, several independent groups of consumers, and a history to replay."""

from sluicegate.asyncio.streams.group import ConsumerGroup, GroupOptions
from sluicegate.asyncio.streams.stream import RedisStreamQueue
from sluicegate.core.transitions.group_pending import GroupConsumer, PendingMessage, PendingSummary
from sluicegate.core.transitions.trim import TrimReport
from sluicegate.report import GroupInfo, StreamInfo

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
