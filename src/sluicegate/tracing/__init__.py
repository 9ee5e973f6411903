"""Traces messages with OpenTelemetry: publish, claim, handling and verdict, across processes.

It needs the extra `tracing`, and an SDK that exports the spans. `instrument` switches it on for every queue, stream,
group, queue of jobs, worker and drain of the process, threaded and asyncio.
"""

from sluicegate.extras import extra_needed

with extra_needed("tracing", "sluicegate.tracing"):
    from sluicegate.tracing.context import context_of, links_of
    from sluicegate.tracing.runs import StepSpan, note_depth
    from sluicegate.tracing.tracer import instrument, is_instrumented, uninstrument

__all__ = [
    "StepSpan",
    "context_of",
    "instrument",
    "is_instrumented",
    "links_of",
    "note_depth",
    "uninstrument",
]
