"""Whether a queue's server evicts keys when it is full: looked up once by each object that publishes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import EvictionPolicyError

__all__ = ["Eviction", "eviction"]

_log = logging.getLogger("sluicegate")
_FITTING = "noeviction"
_REMEDY = f"CONFIG SET maxmemory-policy {_FITTING}, or the setting of that name where the server is hosted"


def eviction(keys: QueueKeys) -> Call[str | None]:
    """The server's `maxmemory-policy`; None where it is not told."""
    return Call(scripts.load("eviction"), (keys.counters,), (), _policy)


def _policy(reply: object) -> str | None:
    return reply.decode() if isinstance(reply, bytes) else None


@dataclass(slots=True)
class Eviction:
    """What one queue object knows of its server's eviction.

    Attributes:
        keys: of the queue.
        required: whether the queue publishes only where nothing is evicted.
        looked: whether nothing is left to look up.
    """

    keys: QueueKeys
    required: bool
    looked: bool = field(default=False, init=False)

    def before(self) -> Operation[None]:
        """Where it is required, look before the first publish.

        Raises:
            EvictionPolicyError: the server evicts keys, or does not tell.
        """
        if not self.required or self.looked:
            return
        policy: str | None = yield eviction(self.keys)
        if policy != _FITTING:
            found = "its policy cannot be read: grant INFO" if policy is None else f"its policy is {policy}: {_REMEDY}"
            raise EvictionPolicyError(
                f"queue {self.keys.name!r} has require_noeviction=True, but its server may delete messages when it is "
                f"full; {found}. Nothing was published",
                policy=policy,
            ).locate(operation="publish")
        self.looked = True

    def after(self) -> Operation[None]:
        """Otherwise look after the first publish that succeeded, and warn; what goes wrong is of no concern to it."""
        if self.looked:
            return
        self.looked = True  # at once: of many tasks one looks
        try:
            policy: str | None = yield replace(eviction(self.keys), patience_seconds=0)
        except Exception as error:  # noqa: BLE001  (the publish itself succeeded)
            _log.debug("the eviction policy of queue %r cannot be read: %s", self.keys.name, type(error).__name__)
            return
        if policy is not None and policy != _FITTING:
            _log.warning(
                "the server of queue %r has maxmemory-policy %s: when it is full it deletes messages without a word; "
                "use %s",
                self.keys.name,
                policy,
                _REMEDY,
            )
