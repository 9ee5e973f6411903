"""Makes spans of OpenTelemetry out of what the library reports to its tracer."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider

from sluicegate import spans
from sluicegate._lease_base import ClaimedBatch
from sluicegate._session import QueueSession
from sluicegate.clock import elapsed_clock
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.ledger import VerdictGroup, parse_ranges
from sluicegate.report import PublishReport
from sluicegate.tracing import attributes as named
from sluicegate.tracing.context import W3C, headers_with, span_contexts

__all__ = ["OpenTelemetryTracer", "instrument", "is_instrumented", "uninstrument"]

P = ParamSpec("P")
_NAME = "sluicegate"
_FAILED = ("nack", "bury", "discard")
_HANDLING = contexts.create_key("sluicegate-handling")
_log = logging.getLogger("sluicegate")


def instrument(tracer_provider: TracerProvider | None = None, *, propagator: TextMapPropagator = W3C) -> None:
    """Trace everything that this process publishes and consumes from now on.

    Calling it again replaces the provider. Without an SDK, spans are not recorded, and messages carry the context of a
    trace only if one is current.

    Args:
        tracer_provider: makes the spans; None for the global provider, also if that is set later.
        propagator: writes the context into the headers of messages, and reads it; W3C Trace Context by default.
            Producers and consumers must use the same.
    """
    spans.tracer = OpenTelemetryTracer(tracer_provider, propagator)


def uninstrument() -> None:
    """Trace nothing any more."""
    spans.tracer = None


def is_instrumented() -> bool:
    """Return whether this process traces."""
    return isinstance(spans.tracer, OpenTelemetryTracer)


def _harmless(function: Callable[P, None]) -> Callable[P, None]:
    """Log what a tracer raises, such as a span processor's error: tracing changes no outcome."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (whatever an exporter or a sampler raises)
            _log.warning("a span could not be made or ended: %s", type(error).__name__)

    return guarded


class OpenTelemetryTracer:
    """The tracer that `instrument` installs.

    Args:
        provider: makes the spans; None for the global one.
        propagator: writes and reads contexts.

    Attributes:
        tracer: makes them under this library's name.
        propagator: writes and reads contexts.
    """

    def __init__(self, provider: TracerProvider | None, propagator: TextMapPropagator) -> None:
        self._provider = provider
        self.tracer = trace.get_tracer(_NAME, tracer_provider=provider)
        self.propagator = propagator

    @property
    def provider(self) -> TracerProvider:
        """Return what makes the spans."""
        return self._provider or trace.get_tracer_provider()

    def publishing(
        self, session: QueueSession[Any], headers: Mapping[str, str] | None, *, is_current: bool
    ) -> AbstractContextManager[spans.Publication]:
        """Make the span of a publish, whose context goes into the headers."""
        return _Publishing(self, session, headers, is_current)

    def handling(self, session: QueueSession[Any], batch: ClaimedBatch) -> AbstractContextManager[None]:
        """Make the span of the work on a lease, which is current while it lasts."""
        return _Handling(self, session, batch)

    @_harmless
    def claimed(self, session: QueueSession[Any], batch: ClaimedBatch, begun: float) -> None:
        """Make the span of a claim that found messages; an empty one makes none."""
        origins = span_contexts(batch.messages, self.propagator)
        attributes = named.of_place(session, "claim", "receive")
        attributes |= named.of_messages(batch.messages, batch.claim.lease_id)
        span = self.start(
            f"claim {session.keys.name}", SpanKind.CLIENT, attributes, origins, start_time=_wall_clock(begun)
        )
        batch.trace = span.get_span_context()
        span.end()

    @_harmless
    def settled(
        self,
        session: QueueSession[Any],
        batch: ClaimedBatch,
        groups: Sequence[VerdictGroup],
        begun: float,
        error: Exception | None,
    ) -> None:
        """Make the span of a call with verdicts."""
        slots: dict[str, int] = {}
        for group in groups:
            slots[group.verb] = slots.get(group.verb, 0) + sum(1 for _ in parse_ranges(group.slots))
        name = next(iter(slots)) if len(slots) == 1 else "settle"
        attributes = named.of_place(session, name, "settle")
        attributes |= {named.LEASE_ID: batch.claim.lease_id, named.BATCH_COUNT: sum(slots.values())}
        attributes |= {f"sluicegate.{verb}": count for verb, count in slots.items()} if len(slots) > 1 else {}
        handling = contexts.get_value(_HANDLING)
        is_inside = isinstance(handling, _Handling) and handling.batch is batch
        origins = [] if is_inside else span_contexts(batch.messages, self.propagator)
        span = self.start(
            f"{name} {session.keys.name}",
            SpanKind.CLIENT,
            attributes,
            origins,
            () if is_inside else _valid(batch.trace),
            start_time=_wall_clock(begun),
        )
        if error is not None:
            fail(span, type(error).__name__)
        if isinstance(handling, _Handling) and is_inside:
            for group in groups:
                if group.verb in _FAILED and (kind := _error_type(group.why)):
                    fail(handling.span, kind)
        span.end()

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: named.Attributes,
        origins: Sequence[SpanContext] = (),
        more: Sequence[SpanContext] = (),
        *,
        start_time: int | None = None,
    ) -> Span:
        """Start a span.

        It is a child of the current span. Without one, it is a child of the publish that all of its messages come
        from; if they come from several, it begins a trace.

        Args:
            name: of the span.
            kind: producer, consumer or client.
            attributes: of the span.
            origins: the publishes that its messages come from; it has links to them.
            more: other spans to link to.
            start_time: when it began, in nanoseconds since the epoch; None for now.
        """
        context: Context | None = None
        if not trace.get_current_span().get_span_context().is_valid and len(origins) == 1:
            context = trace.set_span_in_context(trace.NonRecordingSpan(origins[0]))
        links = [Link(each) for each in (*origins, *more)]
        return self.tracer.start_span(name, context, kind, dict(attributes), links, start_time)


class _Publishing:
    """The span of one publish."""

    def __init__(
        self,
        tracer: OpenTelemetryTracer,
        session: QueueSession[Any],
        headers: Mapping[str, str] | None,
        is_current: bool,
    ) -> None:
        self.headers = headers
        self._tracer = tracer
        self._session = session
        self._is_current = is_current
        self._span: Span = trace.INVALID_SPAN
        self._token: Token[Context] | None = None
        self._report = PublishReport()
        self._id: str | None = None

    def __enter__(self) -> _Publishing:
        self._begin()
        return self

    @_harmless
    def _begin(self) -> None:
        name = self._session.keys.name
        attributes = named.of_place(self._session, "publish", "send")
        self._span = self._tracer.start(f"publish {name}", SpanKind.PRODUCER, attributes)
        context = trace.set_span_in_context(self._span)
        self.headers = headers_with(context, self.headers, self._tracer.propagator)
        if self._is_current:
            self._token = contexts.attach(context)

    def published(self, report: PublishReport) -> None:
        """Count the outcomes of a call."""
        total = self._report
        self._id = report.ids[0] if not total.accepted and len(report.ids) == 1 else None
        total.accepted += report.accepted
        total.duplicates += report.duplicates
        total.refused += report.refused

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    @_harmless
    def _end(self, error: BaseException | None) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        report, span = self._report, self._span
        span.set_attribute(named.BATCH_COUNT, report.accepted + report.duplicates + report.refused)
        for name, count in ((named.DUPLICATES, report.duplicates), (named.REFUSED, report.refused)):
            if count:
                span.set_attribute(name, count)
        if self._id is not None:
            span.set_attribute(named.MESSAGE_ID, self._id)
        if error is not None and not isinstance(error, GeneratorExit):
            fail(span, type(error).__name__)
        span.end()


class _Handling:
    """The span of the work on the messages of a lease."""

    def __init__(self, tracer: OpenTelemetryTracer, session: QueueSession[Any], batch: ClaimedBatch) -> None:
        self.batch = batch
        self.span: Span = trace.INVALID_SPAN
        self._tracer = tracer
        self._session = session
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        self._begin()

    @_harmless
    def _begin(self) -> None:
        batch = self.batch
        attributes = named.of_place(self._session, "handle", "process")
        attributes |= named.of_messages(batch.messages, batch.claim.lease_id)
        origins = span_contexts(batch.messages, self._tracer.propagator)
        name = f"handle {self._session.keys.name}"
        self.span = self._tracer.start(name, SpanKind.CONSUMER, attributes, origins, _valid(batch.trace))
        context = contexts.set_value(_HANDLING, self, trace.set_span_in_context(self.span))
        self._token = contexts.attach(context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    @_harmless
    def _end(self, error: BaseException | None) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if error is not None:
            fail(self.span, type(error).__name__)
        self.span.end()


def fail(span: Span, kind: str) -> None:
    """Mark a span as failed with the class of an error; its text may quote a payload and stays out."""
    span.set_attribute(named.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR)


def _valid(context: SpanContext | None) -> tuple[SpanContext, ...]:
    return (context,) if context is not None and context.is_valid else ()


def _error_type(why: bytes) -> str:
    """Return the class of the error of a verdict, from "reason US error type US error text"; "" for none."""
    parts = why.split(SEPARATOR)
    return parts[1].decode(errors="replace") if len(parts) == 3 else ""


def _wall_clock(begun: float) -> int:
    """Return when something began by `elapsed_clock`, in nanoseconds since the epoch."""
    return time.time_ns() - int((elapsed_clock() - begun) * 1e9)
