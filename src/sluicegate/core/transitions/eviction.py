"""The eviction check finds out whether the server of a queue deletes keys when it is full."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import EvictionPolicyError

__all__ = ["EvictionCheck", "eviction_call"]

_log = logging.getLogger("sluicegate")
_SAFE = "noeviction"
_REMEDY = f"CONFIG SET maxmemory-policy {_SAFE}, or the setting of that name where the server is hosted"


def eviction_call(keys: QueueKeys) -> Call[str | None]:
    """Prepare the call that answers the server's `maxmemory-policy`, None where the user may not read it."""
    return Call(scripts.load("eviction"), (keys.counters,), (), _decode)


@dataclass(slots=True)
class EvictionCheck:
    """The check of the server's eviction policy, made once by each queue object that publishes.

    Attributes:
        keys: the keys of the queue.
        required: whether the queue may publish only where nothing is evicted.
        done: whether the check was made.
    """

    keys: QueueKeys
    required: bool
    done: bool = field(default=False, init=False)

    def before_publish(self) -> Operation[None]:
        """Check the policy before the first publish if the queue requires `noeviction`.

        Raises:
            EvictionPolicyError: the server evicts keys, or does not say whether it does.
        """
        if not self.required or self.done:
            return
        policy: str | None = yield eviction_call(self.keys)
        if policy != _SAFE:
            found = "its policy cannot be read: grant INFO" if policy is None else f"its policy is {policy}: {_REMEDY}"
            raise EvictionPolicyError(
                f"queue {self.keys.name!r} has require_noeviction=True, but its server may delete messages when it is "
                f"full; {found}. Nothing was published",
                policy=policy,
            ).locate(operation="publish")
        self.done = True

    def after_publish(self) -> Operation[None]:
        """Check the policy after the first publish otherwise, and warn; a failed check has no effect."""
        if self.done:
            return
        self.done = True  # before the call, so that only one of several tasks makes it
        try:
            policy: str | None = yield replace(eviction_call(self.keys), patience_seconds=0)
        except Exception as error:  # noqa: BLE001  (the publish itself succeeded)
            _log.debug("the eviction policy of queue %r cannot be read: %s", self.keys.name, type(error).__name__)
            return
        if policy is not None and policy != _SAFE:
            _log.warning(
                "the server of queue %r has maxmemory-policy %s: when it is full it deletes messages without notice; "
                "use %s",
                self.keys.name,
                policy,
                _REMEDY,
            )


def _decode(reply: object) -> str | None:
    return reply.decode() if isinstance(reply, bytes) else None
