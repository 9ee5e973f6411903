"""Sluicegate is a dependable message queue on Redis for data pipelines.

DAGs publish deduplicated batches, sensors open the gate on depth or age, and a Spark task drains leased messages and
acks them per partition.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate._lease_base import LeaseState, Verdict
    from sluicegate.batch_status import BatchStatus
    from sluicegate.batches import Batch
    from sluicegate.config import QueueSpec
    from sluicegate.consumer import QueueConsumer
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
    from sluicegate.gateway import RedisGateway
    from sluicegate.interrupts import (
        BaseGracefulInterruptHandler,
        EventDrivenInterruptHandler,
        GracefulInterruptHandler,
    )
    from sluicegate.lease import Lease
    from sluicegate.lease_handle import LeaseHandle
    from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, InFlightMessage, Message
    from sluicegate.message_loop import MessageLoop
    from sluicegate.opening import open_place, open_spec, open_url
    from sluicegate.place import Place
    from sluicegate.queue import RedisMessageQueue
    from sluicegate.report import Depth, PublishReport, QueueStats, RedriveReport, RepairReport
    from sluicegate.streams.group import ConsumerGroup
    from sluicegate.streams.stream import RedisStreamQueue

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
    "GroupNotFoundError",
    "HandlerFailedError",
    "HandlerFailure",
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
    "PartitionSummary",
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
    "drain",
    "open_place",
    "open_spec",
    "open_url",
    "replicated",
]
__version__ = "0.2.0"

# The module of each name that is not an error. A name loads its module when it is first used, so that a program which
# names a gate or an error does not load redis-py.
_MODULE_OF = {
    "BaseGracefulInterruptHandler": "interrupts",
    "Batch": "batches",
    "BatchStatus": "batch_status",
    "CompletedMessage": "message",
    "ConsumerGroup": "streams.group",
    "DeadMessage": "message",
    "Depth": "report",
    "DrainContext": "draining.context",
    "DrainProgress": "draining.progress",
    "DrainSummary": "draining.summary",
    "Durability": "core.durability",
    "EventDrivenInterruptHandler": "interrupts",
    "EventOperation": "events",
    "EventOutcome": "events",
    "FailedAttempt": "message",
    "GracefulInterruptHandler": "interrupts",
    "HandlerFailure": "draining.summary",
    "InFlightMessage": "message",
    "Json": "core.json",
    "Lease": "lease",
    "LeaseCounts": "core.ledger",
    "LeaseHandle": "lease_handle",
    "LeaseState": "_lease_base",
    "Message": "message",
    "MessageLoop": "message_loop",
    "PartitionSummary": "draining.summary",
    "Payload": "core.publishing",
    "Place": "place",
    "PublishReport": "report",
    "QueueConsumer": "consumer",
    "QueueEvent": "events",
    "QueueSpec": "config",
    "QueueStats": "report",
    "RedisGateway": "gateway",
    "RedisMessageQueue": "queue",
    "RedisStreamQueue": "streams.stream",
    "RedriveReport": "report",
    "RepairReport": "report",
    "Verdict": "_lease_base",
    "drain": "draining.local",
    "open_place": "opening",
    "open_spec": "opening",
    "open_url": "opening",
    "replicated": "core.durability",
}


if not TYPE_CHECKING:  # a checker of types would accept every name

    def __getattr__(name: str) -> object:
        """Load a public name, or one of the modules that hold them."""
        if name in ("errors", *_MODULE_OF.values()):
            return importlib.import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_MODULE_OF.get(name, 'errors')}")
        value = globals()[name] = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
