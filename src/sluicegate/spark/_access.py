"""Make calls below the queue's methods: read leases, run prepared calls, and read a depth before a job starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from sluicegate.config import QueueSpec
from sluicegate.consumer import QueueConsumer
from sluicegate.core.call import Call, alone
from sluicegate.core.transitions.manifest import LeaseView, manifest_call
from sluicegate.errors import RedisUnavailableError
from sluicegate.leased_messages import LeasedMessages
from sluicegate.opening import open_spec
from sluicegate.report import Depth
from sluicegate.spark._place import PublishTarget

__all__ = [
    "LeaseView",
    "messages_in",
    "read_depth",
    "read_lease",
    "run_call",
    "short_traceback",
]

T = TypeVar("T")


def run_call(queue: QueueConsumer | PublishTarget, call: Call[T]) -> T:
    """Execute a prepared call with the queue's own retries."""
    return queue.session.runner.run(alone(call))


def read_depth(spec: QueueSpec) -> Depth:
    """Read the depth of a queue or group over a new connection, as every task opens one.

    If that fails, so would every task.

    Raises:
        RedisUnavailableError: Redis cannot be reached.
    """
    queue = open_spec(spec)
    try:
        return queue.depth()
    finally:
        queue.close()


@contextmanager
def short_traceback() -> Iterator[None]:
    """Raise the error of an unreachable Redis without its traceback and causes.

    Spark prints the traceback of the error that ends a planning process, and those of its causes. A page of them would
    hide the one line that says what to do.
    """
    try:
        yield
    except RedisUnavailableError as error:
        raise error.with_traceback(None) from None


def read_lease(queue: QueueConsumer, lease_id: str, first: int = 1, last: int = 0) -> LeaseView:
    """Read the state of a lease and, with a `last`, its messages from slot `first` on, up to 4 MiB and at least one.

    The call changes nothing and needs no token. It raises as every call does when Redis cannot be reached.
    """
    keys = queue.session.keys
    return run_call(queue, manifest_call(keys, keys.lease_name(lease_id), first, last))


def messages_in(view: LeaseView) -> LeasedMessages:
    """Return the messages of a lease that was read, with the delivery counts that its consumer sees."""
    return LeasedMessages(view.leased())
