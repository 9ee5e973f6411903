"""The same queue for asyncio: the names of `sluicegate`, with coroutines where those block."""

from sluicegate.asyncio.gateway import RedisGateway
from sluicegate.asyncio.lease import Lease
from sluicegate.asyncio.queue import RedisMessageQueue

__all__ = ["Lease", "RedisGateway", "RedisMessageQueue"]
