"""Carries the context of a trace in the headers of messages, as W3C Trace Context: `traceparent` and `tracestate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sluicegate.core import json
from sluicegate.core.entry import encode_headers, split_entry
from sluicegate.errors import MalformedStoredMessageError, PayloadTooLargeError
from sluicegate.message import Message

__all__ = ["MAX_LINKS", "W3C", "context_of", "headers_with", "links_of", "span_contexts"]

W3C: TextMapPropagator = TraceContextTextMapPropagator()
MAX_LINKS = 128
"""Most links of a span, as many as the SDK keeps by default."""


def headers_with(
    context: Context, headers: Mapping[str, str] | None, propagator: TextMapPropagator = W3C
) -> Mapping[str, str] | None:
    """Return headers with the context of a trace added; as they are if there is none, or no room for it."""
    carrier: dict[str, str] = {}
    propagator.inject(carrier, context=context)
    if not carrier:
        return headers
    joined = {**(headers or {}), **carrier}
    try:
        encode_headers(joined)
    except PayloadTooLargeError:
        return headers
    except TypeError:  # the publish itself says which header is wrong
        return headers
    return joined


def context_of(message: Message | Mapping[str, str], propagator: TextMapPropagator = W3C) -> Context:
    """Return the context in which a message was published, to continue its trace; an empty one if it has none.

    Args:
        message: of any lease or peek, or the headers of one that another task handed on.
        propagator: that wrote the context.
    """
    headers = _headers_of(message) if isinstance(message, Message) else message
    return propagator.extract(headers, context=Context())


def links_of(messages: Iterable[Message], propagator: TextMapPropagator = W3C) -> list[Link]:
    """Return a link to each publish that messages come from, 128 at most; for a span that handles them together."""
    return [Link(found) for found in span_contexts(messages, propagator)]


def span_contexts(messages: Iterable[Message], propagator: TextMapPropagator = W3C) -> list[SpanContext]:
    """Return the distinct contexts of publishes, in the order of their messages.

    Messages of one publish have the same headers, byte for byte, so these are parsed once.
    """
    seen: set[bytes] = set()
    found: dict[tuple[int, int], SpanContext] = {}
    for message in messages:
        raw = _raw_headers(message)
        if not raw or raw in seen:
            continue
        seen.add(raw)
        context = trace.get_current_span(context_of(message, propagator)).get_span_context()
        if context.is_valid:
            found.setdefault((context.trace_id, context.span_id), context)
            if len(found) == MAX_LINKS:
                break
    return list(found.values())


def _raw_headers(message: Message) -> bytes:
    try:
        return split_entry(message.entry)[2]
    except MalformedStoredMessageError:
        return b""


def _headers_of(message: Message) -> dict[str, str]:
    """Return the headers that are texts; other programs may have written anything."""
    with suppress(ValueError):
        found = json.loads(_raw_headers(message) or b"{}")
        if isinstance(found, dict):
            return {name: value for name, value in found.items() if isinstance(value, str)}
    return {}
