"""A stream has one publish, several independent groups of consumers, and a history to replay."""

from sluicegate.asyncio.streams.stream import RedisStreamQueue
from sluicegate.core.transitions.trim import TrimReport
from sluicegate.report import GroupInfo, StreamInfo

__all__ = ["GroupInfo", "RedisStreamQueue", "StreamInfo", "TrimReport"]
