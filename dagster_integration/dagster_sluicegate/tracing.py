"""A span for each step that publishes or drains, in one trace per run: Dagster makes no spans itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_sluicegate.identity import root_run_id
from sluicegate import spans

if TYPE_CHECKING:
    from sluicegate.tracing import StepSpan

__all__ = ["traced_step", "traced_steps"]


@contextmanager
def traced_step(context: Any) -> Iterator[None]:
    """Trace a block of a step, if this process called `sluicegate.tracing.instrument`.

    Args:
        context: of the asset, op or output.
    """
    if spans.tracer is None:
        yield
        return
    span = _span_of(context)
    try:
        with span.working():
            yield
    finally:
        span.end()


def traced_steps(context: Any, events: Generator[Any, None, None]) -> Iterator[Any]:
    """Trace a step that yields events. Its span is not the current one while Dagster works on an event.

    Args:
        context: of the asset or op.
        events: of the step. It is closed if Dagster asks for no more of them.
    """
    if spans.tracer is None:
        yield from events
        return
    span = _span_of(context)
    try:
        while True:
            with span.working():
                try:
                    event = next(events)
                except StopIteration:
                    return
            yield event
    finally:
        with span.working():
            events.close()
        span.end()


def _span_of(context: Any) -> StepSpan:
    from sluicegate.tracing import StepSpan

    run: Any = None
    name, attributes = "", dict[str, str | int]()
    with suppress(dg.DagsterError):  # the context of a direct call in a test has no run
        if isinstance(context, dg.OutputContext):
            step = context.step_context
            run, name = step.dagster_run, step.step.key
        else:
            op: Any = context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context
            run, name = op.run, str(op.op_handle)
            attributes["dagster.retry_number"] = op.retry_number
    tags: Mapping[str, str] = {} if run is None else run.tags
    if run is not None:
        attributes |= {"dagster.run_id": run.run_id, "dagster.job_name": run.job_name, "dagster.step_key": name}
    return StepSpan(f"step {name}".rstrip(), root_run_id(context), tags, attributes)
