"""Sluicegate is a dependable message queue on Redis for data pipelines.

DAGs publish deduplicated batches, sensors open the gate on depth or age, and a Spark task drains leased messages and
acks them per partition.
"""

from sluicegate._lease_base import LeaseState, Verdict
from sluicegate.config import QueueSpec
from sluicegate.core.durability import Durability, replicated
from sluicegate.core.json import Json
from sluicegate.core.ledger import LeaseCounts
from sluicegate.core.publishing import Payload
from sluicegate.draining.context import DrainContext
from sluicegate.draining.local import drain
from sluicegate.draining.progress import DrainProgress
from sluicegate.draining.summary import DrainSummary, HandlerFailure, PartitionSummary
from sluicegate.errors import (
    AlreadySettledError,
    CleanupFailedError,
    ConfigurationError,
    DrainFailedError,
    DurabilityAccessError,
    EmbeddedServerError,
    EmbeddedServerNotFoundError,
    EvictionPolicyError,
    GatewayContractError,
    LeaseEndedError,
    LeaseLostError,
    LuaScriptError,
    MalformedStoredMessageError,
    NotDurableError,
    OptionTypeError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    PublishUnknownError,
    QueueBackpressureError,
    QueueDrainedError,
    RedisAccessError,
    RedisMemoryError,
    RedisMessageQueueError,
    RedisRefusedError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
    UnsafeFolderError,
    WrongKeyTypeError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.gateway import RedisGateway
from sluicegate.interrupts import (
    BaseGracefulInterruptHandler,
    EventDrivenInterruptHandler,
    GracefulInterruptHandler,
)
from sluicegate.lease import Lease
from sluicegate.lease_handle import LeaseHandle
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import Depth, PublishReport, QueueStats, RedriveReport, RepairReport

__all__ = [
    "AlreadySettledError",
    "BaseGracefulInterruptHandler",
    "CleanupFailedError",
    "CompletedMessage",
    "ConfigurationError",
    "DeadMessage",
    "Depth",
    "DrainContext",
    "DrainFailedError",
    "DrainProgress",
    "DrainSummary",
    "Durability",
    "DurabilityAccessError",
    "EmbeddedServerError",
    "EmbeddedServerNotFoundError",
    "EventDrivenInterruptHandler",
    "EventOperation",
    "EventOutcome",
    "EvictionPolicyError",
    "FailedAttempt",
    "GatewayContractError",
    "GracefulInterruptHandler",
    "HandlerFailure",
    "InFlightMessage",
    "Json",
    "Lease",
    "LeaseCounts",
    "LeaseEndedError",
    "LeaseHandle",
    "LeaseLostError",
    "LeaseState",
    "LuaScriptError",
    "MalformedStoredMessageError",
    "Message",
    "NotDurableError",
    "OptionTypeError",
    "PartitionSummary",
    "Payload",
    "PayloadTooDeepError",
    "PayloadTooLargeError",
    "PublishReport",
    "PublishUnknownError",
    "QueueBackpressureError",
    "QueueDrainedError",
    "QueueEvent",
    "QueueSpec",
    "QueueStats",
    "RedisAccessError",
    "RedisGateway",
    "RedisMemoryError",
    "RedisMessageQueue",
    "RedisMessageQueueError",
    "RedisRefusedError",
    "RedisUnavailableError",
    "RedriveReport",
    "RepairReport",
    "RetryBudgetExhaustedError",
    "UnsafeFolderError",
    "Verdict",
    "WrongKeyTypeError",
    "drain",
    "replicated",
]
__version__ = "0.1.0"
