"""Where tracing attaches: the library reports to a tracer if one is installed, and imports no library of tracing.

`sluicegate.tracing` installs one that makes spans of OpenTelemetry. Without one, a call only looks at `tracer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sluicegate._lease_base import ClaimedBatch
    from sluicegate._session import QueueSession
    from sluicegate.core.ledger import VerdictGroup
    from sluicegate.report import PublishReport

__all__ = ["Publication", "Tracer", "publishing"]


class Publication(Protocol):
    """One publish, as a tracer follows it."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Return the headers of its messages: those that the caller gave, and the context of the trace."""

    def published(self, report: PublishReport) -> None:
        """Take the outcomes of a call, of which one publish may make several."""


class Tracer(Protocol):
    """Follows messages from publish to verdict. It must not raise, and changes no outcome."""

    def publishing(
        self, session: QueueSession[Any], headers: Mapping[str, str] | None, *, is_current: bool
    ) -> AbstractContextManager[Publication]:
        """Follow a publish.

        Args:
            session: of the queue or stream.
            headers: that the caller gave.
            is_current: whether the publish is what its caller does until it ends; False for a generator, whose caller
                does other things between its steps.
        """

    def claimed(self, session: QueueSession[Any], batch: ClaimedBatch, begun: float) -> None:
        """Note that messages were claimed, in a claim that began at `begun` by `elapsed_clock`."""

    def handling(self, session: QueueSession[Any], batch: ClaimedBatch) -> AbstractContextManager[None]:
        """Follow the work on the messages of a lease."""

    def settled(
        self,
        session: QueueSession[Any],
        batch: ClaimedBatch,
        groups: Sequence[VerdictGroup],
        begun: float,
        error: Exception | None,
    ) -> None:
        """Note which verdicts were sent and how the call ended; it began at `begun` by `elapsed_clock`."""


class _Untraced:
    """A publish without a tracer."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        self.headers = headers

    def published(self, report: PublishReport) -> None:
        """Ignore the outcomes of a call."""


tracer: Tracer | None = None
"""The tracer of this process; `sluicegate.tracing.instrument` sets it."""


def publishing(
    session: QueueSession[Any], headers: Mapping[str, str] | None, *, is_current: bool = True
) -> AbstractContextManager[Publication]:
    """Follow a publish if a tracer is installed; see `Tracer.publishing`."""
    if tracer is None:
        return nullcontext(_Untraced(headers))
    return tracer.publishing(session, headers, is_current=is_current)
