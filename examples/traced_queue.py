"""Publish and handle three orders, and print the spans: each handling belongs to the trace of its publish.

Connects to REDIS_URL, or to redis://localhost:6379/0. A service would export its spans by OTLP instead of printing.

Usage: python examples/traced_queue.py
"""

import os

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sluicegate import RedisMessageQueue
from sluicegate.tracing import instrument

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
instrument()

with RedisMessageQueue("traced", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0")) as queue:
    for order in range(3):
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            queue.publish({"order": order})
    while lease := queue.claim():
        with lease:
            pass

orders = {span.context.trace_id: number for number, span in enumerate(spans.get_finished_spans()[1::2][:3])}
for span in spans.get_finished_spans():
    print(f"trace {orders[span.context.trace_id]}: {span.name}")
