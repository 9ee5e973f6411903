"""Spans about an orchestrator's own work: a gate that opened, and the steps of runs that nothing else traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, TraceFlags, TracerProvider

from sluicegate import spans
from sluicegate.place import Place
from sluicegate.report import Depth
from sluicegate.tracing import attributes as named
from sluicegate.tracing.context import context_of
from sluicegate.tracing.tracer import OpenTelemetryTracer, fail

__all__ = ["StepSpan", "note_depth"]


def note_depth(what: str, place: Place, depth: Depth) -> None:
    """Add an event with the counts of a queue or group to the current span, if one is recorded.

    Args:
        what: the name of the event, such as `gate open`.
        place: the queue or group.
        depth: what was read.
    """
    span = trace.get_current_span()
    if not span.is_recording():
        return
    counts: dict[str, str | int | float] = {
        named.SYSTEM: "sluicegate",
        named.DESTINATION: place.name,
        named.READY: depth.ready,
        named.DEAD: depth.dead,
        named.OLDEST_READY_AGE: depth.oldest_ready_age_seconds or 0.0,
    }
    if place.group is not None:
        counts[named.GROUP] = place.group
    span.add_event(what, counts)


class StepSpan:
    """The span of one step of a run, for an orchestrator that makes no spans itself.

    All steps of a run are in one trace, in whichever process they run: that of the parent that the run was given, or
    one whose id is that of the run.

    Args:
        name: of the span.
        run_id: of the run, a UUID; anything else begins a trace of its own.
        carrier: where the run was launched from, with a `traceparent`; empty for nowhere.
        attributes: of the span.
    """

    def __init__(self, name: str, run_id: str, carrier: Mapping[str, str], attributes: Mapping[str, str | int]) -> None:
        tracer = spans.tracer
        self._span: Span = trace.INVALID_SPAN
        if isinstance(tracer, OpenTelemetryTracer):
            parent = context_of(carrier, tracer.propagator)
            if not trace.get_current_span(parent).get_span_context().is_valid:
                parent = _context_of_run(run_id, name, tracer.provider)
            self._span = tracer.tracer.start_span(name, parent, SpanKind.INTERNAL, dict(attributes))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Make the span the current one for the block; an error of the block marks it as failed."""
        try:
            with trace.use_span(self._span, record_exception=False, set_status_on_exception=False):
                yield
        except Exception as error:
            fail(self._span, type(error).__name__)
            raise

    def end(self) -> None:
        """End the span."""
        self._span.end()


def _context_of_run(run_id: str, name: str, provider: TracerProvider) -> Context:
    """Return a parent in the trace of a run, which all its processes derive alike.

    Whether it is sampled is up to the provider's sampler, as for the first span of any trace.
    """
    try:
        number = UUID(run_id).int
    except ValueError:
        return Context()
    sampler = getattr(provider, "sampler", None)
    is_sampled = sampler is None or sampler.should_sample(None, number, name).decision.is_sampled()
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    span_id = number & (2**64 - 1)
    parent = SpanContext(number, span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent)) if parent.is_valid else Context()
