# Made from src/sluicegate/asyncio/depths.py by `make format`; edit there.
"""Reads the depths of many queues in one round trip."""

from __future__ import annotations

from collections.abc import Iterable

from sluicegate.core.call import Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.depth import depth_operation
from sluicegate.errors import RedisMessageQueueError
from sluicegate.gateway import Gateway, RedisGateway
from sluicegate.report import Depth

__all__ = ["read_depths"]


def read_depths(
    gateway: Gateway, names: Iterable[str], *, retry: bool = True
) -> dict[str, Depth | RedisMessageQueueError]:
    """Read the depths of several queues, in one write per Redis server.

    It reads what `queue.depth()` reads. Only queues with expired leases cost further round trips, one each per 500
    leases.

    Args:
        gateway: where the queues are. One that is not the library's is asked queue by queue.
        names: of the queues; each is read once.
        retry: False: one attempt of a few seconds at most.

    Returns:
        Per name its depth, or the error that concerns this queue alone: `WrongKeyTypeError` or `RedisAccessError`.

    Raises:
        ConfigurationError: a name that no queue may have.
        RedisUnavailableError, RedisRefusedError, RetryBudgetExhaustedError: nothing was read.
    """
    operations = {name: depth_operation(QueueKeys(name)) for name in names}
    calls = [next(operation) for operation in operations.values()]
    if isinstance(gateway, RedisGateway):
        answers = gateway.execute_many(calls, retry=retry)  # type: ignore[arg-type]  # depths only make calls
    else:
        answers = [gateway.execute(call, retry=retry) for call in calls]  # type: ignore[arg-type]
    return {
        name: answer.locate(queue=name, operation="depth")
        if isinstance(answer, RedisMessageQueueError)
        else _resume(gateway, operation, answer, retry)
        for (name, operation), answer in zip(operations.items(), answers, strict=True)
    }


def _resume(gateway: Gateway, operation: Operation[Depth], answer: object, retry: bool) -> Depth:
    try:
        while True:
            step = operation.send(answer)
            answer = gateway.execute(step, retry=retry)  # type: ignore[arg-type]  # depths only make calls
    except StopIteration as stop:
        depth: Depth = stop.value
        return depth
