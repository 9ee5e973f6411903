"""Sluicegate: a dependable gate on Redis between an orchestrator and Spark.

DAGs publish dedup-keyed batches, sensors open the gate on depth or age, and a Spark task drains leased messages and
acks them per
partition.
"""

from sluicegate.config import QueueSpec
from sluicegate.core.ledger import LeaseCounts
from sluicegate.gateway import RedisGateway
from sluicegate.lease import Lease, LeaseState, Verdict
from sluicegate.message import DeadMessage, Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import Depth, PublishReport

__all__ = [
    "DeadMessage",
    "Depth",
    "Lease",
    "LeaseCounts",
    "LeaseState",
    "Message",
    "PublishReport",
    "QueueSpec",
    "RedisGateway",
    "RedisMessageQueue",
    "Verdict",
]
__version__ = "0.1.0"
