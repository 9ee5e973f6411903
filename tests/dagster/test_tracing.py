"""Steps that publish and drain are spans in one trace per run, and a drain links to the publishes it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import dagster as dg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import StatusCode

from dagster_sluicegate import (
    QueuePublishIOManager,
    RedisQueueResource,
    build_queue_drain_asset,
    build_queue_drain_job,
    build_queue_publish_asset,
)
from sluicegate import RedisMessageQueue
from sluicegate.tracing import instrument, uninstrument
from tests.dagster.helpers import asset_job
from tests.support.traces import Traces, linked, parent_id, span_id, text_of, trace_id

pytestmark = pytest.mark.dagster


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    instrument(made.provider)
    yield made
    uninstrument()


def produce() -> Iterator[dict[str, Any]]:
    yield from ({"n": number, "note": "secret"} for number in range(5))


def accept(messages: list[Any]) -> None:
    trace.get_current_span().add_event("handled")


def both(process: Callable[..., Any] = accept) -> list[dg.AssetsDefinition]:
    return [
        build_queue_publish_asset(spec="published", produce=produce),
        build_queue_drain_asset(spec=dg.AssetSpec("drained", deps=["published"]), process=process),
    ]


def run(assets: list[dg.AssetsDefinition], resource: RedisQueueResource, **options: Any) -> dg.ExecuteInProcessResult:
    job = asset_job(assets, {"queue": resource, "io_manager": dg.mem_io_manager})
    return job.execute_in_process(raise_on_error=False, **options)


def test_the_steps_of_a_run_are_one_trace_whose_id_is_that_of_the_run(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    result = run(both(), resource)
    assert result.success
    name = queue.name
    publish, handle = traces.one(f"publish {name}"), traces.one(f"handle {name}")
    published, drained = traces.one("step published"), traces.one("step drained")
    assert {trace_id(span) for span in traces.all()} == {UUID(result.run_id).int}
    assert parent_id(publish) == span_id(published)
    assert parent_id(handle) == span_id(drained)
    assert linked(handle) == {span_id(publish), span_id(traces.one(f"claim {name}"))}
    assert parent_id(traces.one(f"ack {name}")) == span_id(drained), "acked after Dagster stored the result"
    assert [event.name for event in handle.events] == ["handled"]
    assert (drained.attributes or {})["dagster.run_id"] == result.run_id
    assert [span for span in traces.all() if "secret" in text_of(span)] == []
    assert not trace.get_current_span().get_span_context().is_valid


def test_another_run_links_to_the_publish(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    publisher, drain = both()
    first, second = run([publisher], resource), run([drain], resource)
    publish, handle = traces.one(f"publish {queue.name}"), traces.one(f"handle {queue.name}")
    assert (trace_id(publish), trace_id(handle)) == (UUID(first.run_id).int, UUID(second.run_id).int)
    assert span_id(publish) in linked(handle)


def test_a_run_continues_the_trace_that_launched_it(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    tags = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert run(both(), resource, tags=tags).success
    assert {f"{trace_id(span):032x}" for span in traces.all()} == {"0af7651916cd43dd8448eb211c80319c"}
    assert parent_id(traces.one("step published")) == 0xB7AD6B7169203331


def test_a_step_that_fails_is_a_failed_span(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    def process(messages: list[Any]) -> None:
        raise ValueError("secret")

    queue.publish({"n": 1})
    job = build_queue_drain_job(name="drain", process=process).execute_in_process
    result = job(resources={"queue": resource, "io_manager": dg.mem_io_manager}, raise_on_error=False)
    assert not result.success
    step, handle = traces.one("step drain_op"), traces.one(f"handle {queue.name}")
    assert (step.status.status_code, handle.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert (handle.attributes or {})["error.type"] == "ValueError"
    assert [span for span in traces.all() if "secret" in text_of(span)] == []


def test_a_step_whose_result_cannot_be_stored_releases_inside_its_span(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    class Broken(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            trace.get_tracer("io").start_span("store").end()
            raise OSError("the disk is full")

        def load_input(self, context: dg.InputContext) -> None: ...

    queue.publish({"n": 1})
    asset = build_queue_drain_asset(spec="drained", process=lambda messages: [message.json() for message in messages])
    job = asset_job([asset], {"queue": resource, "io_manager": Broken()})
    assert not job.execute_in_process(raise_on_error=False).success
    assert parent_id(traces.one(f"release {queue.name}")) == span_id(traces.one("step drained"))


def test_the_sampler_decides_about_a_run(resource: RedisQueueResource) -> None:
    made = Traces(sampler=ParentBased(ALWAYS_OFF))
    instrument(made.provider)
    try:
        assert run(both(), resource).success
    finally:
        uninstrument()
    assert made.all() == []


def test_without_instrument_there_is_no_span(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    uninstrument()
    assert run(both(), resource).success
    assert traces.names() == []


def test_an_io_manager_s_output_is_a_step_too(
    queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces
) -> None:
    @dg.asset(name="published")
    def published() -> list[dict[str, int]]:
        return [{"n": 1}]

    job = asset_job([published], {"io_manager": QueuePublishIOManager(queue=resource)})
    result = job.execute_in_process(raise_on_error=False)
    assert result.success
    step = traces.one("step published")
    assert parent_id(traces.one(f"publish {queue.name}")) == span_id(step)
    assert dict(step.attributes or {}) == {
        "dagster.run_id": result.run_id,
        "dagster.job_name": job.name,
        "dagster.step_key": "published",
    }


def test_a_direct_call_begins_a_trace(queue: RedisMessageQueue, resource: RedisQueueResource, traces: Traces) -> None:
    queue.publish({"n": 1})
    (_, drain) = both()
    list(drain(dg.build_asset_context(), queue=resource))  # type: ignore[call-overload]
    step = traces.one("step")
    assert parent_id(step) is None
    assert parent_id(traces.one(f"handle {queue.name}")) == span_id(step)
