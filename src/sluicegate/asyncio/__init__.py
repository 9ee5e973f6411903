"""This is the queue for asyncio: it has the names of `sluicegate`, with coroutines instead of blocking calls.

`RedisMessageQueue`, `Lease`, `MessageLoop` and `RedisGateway` are specific to asyncio. All other names are those of
`sluicegate`, so a program needs only one of the two modules. Only `drain` and its types are missing, because `drain`
blocks: call it with `asyncio.to_thread` and a queue of `sluicegate`.
"""

from sluicegate._lease_base import LeaseState, Verdict
from sluicegate.asyncio.batches import Batch
from sluicegate.asyncio.consumer import QueueConsumer
from sluicegate.asyncio.gateway import RedisGateway
from sluicegate.asyncio.lease import Lease
from sluicegate.asyncio.message_loop import MessageLoop
from sluicegate.asyncio.opening import open_place, open_spec, open_url
from sluicegate.asyncio.queue import RedisMessageQueue
from sluicegate.asyncio.streams.group import ConsumerGroup
from sluicegate.asyncio.streams.stream import RedisStreamQueue
from sluicegate.batch_status import BatchStatus
from sluicegate.config import QueueSpec
from sluicegate.core.durability import Durability, replicated
from sluicegate.core.json import Json
from sluicegate.core.ledger import LeaseCounts
from sluicegate.core.publishing import Payload
from sluicegate.errors import (
    AlreadySettledError,
    BatchChangedError,
    CleanupFailedError,
    ConfigurationError,
    DrainFailedError,
    DurabilityAccessError,
    EmbeddedServerError,
    EmbeddedServerNotFoundError,
    EvictionPolicyError,
    GatewayContractError,
    GroupNotFoundError,
    HandlerFailedError,
    InvalidPayloadError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
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
    UnhandledTypeError,
    UnsafeFolderError,
    WrongKeyTypeError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.interrupts import (
    BaseGracefulInterruptHandler,
    EventDrivenInterruptHandler,
    GracefulInterruptHandler,
)
from sluicegate.lease_handle import LeaseHandle
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message
from sluicegate.place import Place
from sluicegate.report import Depth, PublishReport, QueueStats, RedriveReport, RepairReport

__all__ = [
    "AlreadySettledError",
    "BaseGracefulInterruptHandler",
    "Batch",
    "BatchChangedError",
    "BatchStatus",
    "CleanupFailedError",
    "CompletedMessage",
    "ConfigurationError",
    "ConsumerGroup",
    "DeadMessage",
    "Depth",
    "DrainFailedError",
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
    "GroupNotFoundError",
    "HandlerFailedError",
    "InFlightMessage",
    "InvalidPayloadError",
    "JobCancelledError",
    "JobFailedError",
    "JobNotFoundError",
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
    "MessageLoop",
    "NotDurableError",
    "OptionTypeError",
    "Payload",
    "PayloadTooDeepError",
    "PayloadTooLargeError",
    "Place",
    "PublishReport",
    "PublishUnknownError",
    "QueueBackpressureError",
    "QueueConsumer",
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
    "RedisStreamQueue",
    "RedisUnavailableError",
    "RedriveReport",
    "RepairReport",
    "RetryBudgetExhaustedError",
    "UnhandledTypeError",
    "UnsafeFolderError",
    "Verdict",
    "WrongKeyTypeError",
    "open_place",
    "open_spec",
    "open_url",
    "replicated",
]
