"""Reads the depths of many queues in one round trip, or what else one operation of each reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from sluicegate.asyncio.gateway import Gateway, RedisGateway
from sluicegate.core.call import Operation
from sluicegate.core.keys import GroupKeys, QueueKeys
from sluicegate.core.transitions.depth import Depth, depth_operation
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.place import Place

__all__ = ["keys_of", "read_depths", "run_together"]

PlaceT = TypeVar("PlaceT", str, Place)
T = TypeVar("T")


async def read_depths(
    gateway: Gateway, places: Iterable[PlaceT], *, retry: bool = True
) -> dict[PlaceT, Depth | RedisMessageQueueError]:
    """Read the depths of several queues and groups of streams, in one write per Redis server.

    It reads what `queue.depth()` reads. Only queues with expired leases cost further round trips, one each per 500
    leases.

    Args:
        gateway: where the queues are. One that is not the library's is asked queue by queue.
        places: names of queues, or places, which groups are too; each is read once.
        retry: False: one attempt of a few seconds at most.

    Returns:
        Per place its depth, or the error that concerns it alone: `WrongKeyTypeError`, `RedisAccessError` or
            `GroupNotFoundError`.

    Raises:
        ConfigurationError: a name that no queue may have, or a stream without a group.
        RedisUnavailableError, RedisRefusedError, RetryBudgetExhaustedError: nothing was read.
    """
    found = await run_together(gateway, {place: depth_operation(keys_of(place)) for place in places}, retry=retry)
    return {
        place: answer.locate(queue=place if isinstance(place, str) else place.name, operation="depth")
        if isinstance(answer, RedisMessageQueueError)
        else answer
        for place, answer in found.items()
    }


async def run_together(
    gateway: Gateway, operations: Mapping[PlaceT, Operation[T]], *, retry: bool = True
) -> dict[PlaceT, T | RedisMessageQueueError]:
    """Run operations that only make calls: the first call of each in one write per server, the others one by one.

    Returns:
        Per place the result, or the error that concerns it alone.
    """
    calls = [next(operation) for operation in operations.values()]
    if isinstance(gateway, RedisGateway):
        answers = await gateway.execute_many(calls, retry=retry)  # type: ignore[arg-type]  # they only make calls
    else:
        answers = [await gateway.execute(call, retry=retry) for call in calls]  # type: ignore[arg-type]
    return {
        place: answer
        if isinstance(answer, RedisMessageQueueError)
        else await _resume(gateway, operation, answer, retry)
        for (place, operation), answer in zip(operations.items(), answers, strict=True)
    }


def keys_of(place: str | Place) -> QueueKeys:
    """Return the keys of a queue or of a group of a stream.

    Raises:
        ConfigurationError: a name that no queue may have, or a stream without a group.
    """
    if isinstance(place, str):
        return QueueKeys(place)
    if place.stream and place.group is None:
        raise ConfigurationError(f"{place} has no depth of its own, because its groups consume; name one of them")
    return QueueKeys(place.name) if place.group is None else GroupKeys(place.name, place.group)


async def _resume(gateway: Gateway, operation: Operation[T], answer: object, retry: bool) -> T:
    try:
        while True:
            step = operation.send(answer)
            answer = await gateway.execute(step, retry=retry)  # type: ignore[arg-type]  # they only make calls
    except StopIteration as stop:
        result: T = stop.value
        return result
