"""The attributes of spans: those of OpenTelemetry's semantic conventions for messaging, and few of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sluicegate._session import QueueSession
from sluicegate.message import Message

__all__ = ["SYSTEM", "Attributes", "of_messages", "of_place"]

# Written out, because OpenTelemetry's package of them calls those of messaging unstable.
SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
GROUP = "messaging.consumer.group.name"
CLIENT = "messaging.client.id"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
BATCH_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
LEASE_ID = "sluicegate.lease.id"
DELIVERY_COUNT = "sluicegate.delivery_count"
DUPLICATES = "sluicegate.duplicates"
REFUSED = "sluicegate.refused"
READY = "sluicegate.ready"
DEAD = "sluicegate.dead"
OLDEST_READY_AGE = "sluicegate.oldest_ready_age_seconds"

Attributes: TypeAlias = dict[str, str | int]


def of_place(session: QueueSession[Any], operation: str, kind: str) -> Attributes:
    """Return what says where a span happened.

    Args:
        session: of the queue, stream or group.
        operation: the verb.
        kind: what the conventions call it: send, receive, process or settle.
    """
    keys = session.keys
    attributes: Attributes = {
        SYSTEM: "sluicegate",
        DESTINATION: keys.name,
        OPERATION: operation,
        OPERATION_TYPE: kind,
    }
    if keys.group:
        attributes[GROUP] = keys.group
    if session.consumer:
        attributes[CLIENT] = session.consumer.decode(errors="replace")
    server = getattr(session.runner.gateway, "server", "")
    host, _, port = str(server).rpartition(":")
    if host and port.isdigit():
        attributes[SERVER_ADDRESS], attributes[SERVER_PORT] = host, int(port)
    elif server:
        attributes[SERVER_ADDRESS] = str(server)
    return attributes


def of_messages(messages: Sequence[Message], lease_id: str) -> Attributes:
    """Return what says which messages a span is about: the id of a single one, the number of several."""
    attributes: Attributes = {LEASE_ID: lease_id, BATCH_COUNT: len(messages)}
    if len(messages) == 1:
        attributes[MESSAGE_ID] = messages[0].id
        attributes[DELIVERY_COUNT] = messages[0].delivery_count
    return attributes
