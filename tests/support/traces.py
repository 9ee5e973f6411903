"""Spans in memory, and how they hang together."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler


class Traces:
    """A provider of OpenTelemetry's SDK that keeps ended spans in memory.

    Args:
        sampler: decides which spans are made; None: all.
    """

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.provider = TracerProvider(sampler=sampler)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """Return the spans that have ended, in that order."""
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        """Return their names."""
        return [span.name for span in self.all()]

    def one(self, name: str) -> ReadableSpan:
        """Return the one span of a name."""
        found = self.named(name)
        assert len(found) == 1, f"{len(found)} spans are named {name!r}; there are {self.names()}"
        return found[0]

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name."""
        return [span for span in self.all() if span.name == name]

    def clear(self) -> None:
        """Forget all spans until now."""
        self._exporter.clear()


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    """Return the id of a span's trace."""
    assert span.context is not None
    return span.context.trace_id


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent; None for the first of a trace."""
    return span.parent.span_id if span.parent is not None else None


def linked(span: ReadableSpan) -> set[int]:
    """Return the ids of the spans that a span links to."""
    return {link.context.span_id for link in span.links}


def text_of(span: ReadableSpan) -> str:
    """Return all that an exporter would send of a span, as text."""
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    return f"{span.name} {dict(span.attributes or {})} {events} {span.status.description}"
