"""Spans that a test made, by the SDK's exporter in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from sluicegate.tracing import instrument, uninstrument
from tests.support.traces import Traces


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Trace this process, and yield what it made."""
    made = Traces()
    instrument(made.provider)
    yield made
    uninstrument()


@pytest.fixture
def tracer(traces: Traces) -> Tracer:
    """Return a tracer of an application's own."""
    provider: TracerProvider = traces.provider
    return provider.get_tracer("application")
