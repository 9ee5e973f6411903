"""A worker claims messages, calls the handler of each message's type, and settles the message by how that ended."""

from sluicegate.asyncio.worker.worker import Worker
from sluicegate.handling.delivery import Delivery
from sluicegate.handling.middleware import Middleware
from sluicegate.handling.report import WorkerReport
from sluicegate.handling.retry import Reject, Retry

__all__ = ["Delivery", "Middleware", "Reject", "Retry", "Worker", "WorkerReport"]
