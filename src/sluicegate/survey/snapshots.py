"""Reads the depths and totals of many places in one write per server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sluicegate.core.call import Operation, alone
from sluicegate.core.keys import StreamKeys
from sluicegate.core.transitions.groups import StreamFound, stream_info_call
from sluicegate.core.transitions.snapshot import Snapshot, snapshot_operation
from sluicegate.depths import keys_of, run_together
from sluicegate.errors import RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place
from sluicegate.report import StreamInfo

__all__ = ["PlaceState", "StreamSnapshot", "read_snapshots"]


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """What a stream holds now, and its groups as Redis knows them.

    Attributes:
        info: as `stream.info()` returns it.
    """

    info: StreamInfo


PlaceState: TypeAlias = Snapshot | StreamSnapshot | RedisMessageQueueError
"""What is known of a place: its snapshot, or the error that concerns it alone."""


def read_snapshots(gateway: RedisGateway, places: Iterable[Place], *, retry: bool = True) -> dict[Place, PlaceState]:
    """Read the depth and totals of queues and groups, and the state of streams, in one write per Redis server.

    Each place costs one command, whatever it holds; only those with expired leases cost one more per 500 leases.

    Args:
        gateway: where they are.
        places: each is read once.
        retry: False: one attempt of a few seconds at most.

    Returns:
        Per place its state. A group that does not exist is a `GroupNotFoundError` there, a key of another type a
            `WrongKeyTypeError`, a missing right a `RedisAccessError`.

    Raises:
        ConfigurationError: a name that nothing may have.
        RedisUnavailableError, RedisRefusedError, RetryBudgetExhaustedError: nothing was read.
    """
    operations: dict[Place, Operation[Snapshot | StreamFound]] = {place: _operation(place) for place in places}
    found = run_together(gateway, operations, retry=retry)
    return {place: _state(place, answer) for place, answer in found.items()}


def _operation(place: Place) -> Operation[Snapshot | StreamFound]:
    if place.stream and place.group is None:
        return alone(stream_info_call(StreamKeys(place.name)))
    return snapshot_operation(keys_of(place))


def _state(place: Place, answer: Snapshot | StreamFound | RedisMessageQueueError) -> PlaceState:
    if isinstance(answer, RedisMessageQueueError):
        return answer.locate(queue=place.name, operation="depth")
    return StreamSnapshot(StreamInfo.of(place.name, answer)) if isinstance(answer, StreamFound) else answer
