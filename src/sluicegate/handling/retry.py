"""How often a failed message is handled again, and the exception by which a handler refuses one for good."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate import checks
from sluicegate.options import OPTIONS, RetryBackoff

__all__ = ["Reject", "Retry"]

_MAX_ATTEMPTS = 4000  # as many deliveries as an entry counts


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens to a message whose handler failed, for one handler or for all of a worker.

    Attributes:
        max_attempts: deliveries after which the message is buried instead of delivered again; crashes and takeovers
            count. None: as the queue's `max_delivery_count` says, which also bounds this one.
        backoff: how long the message waits for its next delivery, one of tenacity's wait strategies. None: as the
            queue's `retry_backoff` says.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    max_attempts: int | None = None
    backoff: RetryBackoff | None = None

    def __post_init__(self) -> None:
        checks.whole("max_attempts", self.max_attempts, _MAX_ATTEMPTS)
        if self.backoff is not None:
            OPTIONS["retry_backoff"].check("backoff", self.backoff)


class Reject(Exception):
    """A handler raises this when no retry would help: the message is buried at once, with this text as its error.

    Args:
        text: why; it is kept with the dead letter.
        reason: the reason of the dead letter, by which `peek` and `redrive` find it.
    """

    def __init__(self, text: str = "", *, reason: str = "rejected") -> None:
        super().__init__(text)
        self.reason = reason
