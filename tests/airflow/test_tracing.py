"""What tasks and triggers do with queues is part of the traces that Airflow makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from opentelemetry.trace import Tracer

import sluicegate.tracing
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from airflow_provider_sluicegate.tracing import follow_airflow
from airflow_provider_sluicegate.triggers.redis_queue import RedisQueueTrigger
from sluicegate import RedisMessageQueue, spans
from sluicegate.tracing import instrument, is_instrumented, uninstrument
from tests.airflow.handlers import accept
from tests.airflow.instance import Instance
from tests.support.traces import Traces, linked, parent_id, span_id, text_of, trace_id

pytestmark = pytest.mark.airflow


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """Let Airflow trace, with spans in memory; queues are not traced before one is opened."""
    made = Traces()
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
    monkeypatch.setattr(sluicegate.tracing, "instrument", partial(instrument, made.provider))
    uninstrument()
    yield made
    uninstrument()


@pytest.fixture
def tracer(traces: Traces) -> Tracer:
    """Return what makes the spans of tasks, as Airflow does."""
    return traces.provider.get_tracer("airflow")


def test_a_drain_task_links_to_the_task_that_published(
    queue: RedisMessageQueue, traces: Traces, tracer: Tracer, instance: Instance
) -> None:
    context: Any = {"ti": instance}
    name = queue.name
    with tracer.start_as_current_span("worker.publish"):
        RedisQueuePublishOperator(task_id="publish", queue_name=name, messages=[{"note": "secret"}] * 3).execute(
            context
        )
    with tracer.start_as_current_span("worker.drain"):
        RedisQueueDrainOperator(task_id="drain", queue_name=name, process=accept).execute(context)
    publish, handle = traces.one(f"publish {name}"), traces.one(f"handle {name}")
    task = traces.one("worker.drain")
    assert parent_id(publish) == span_id(traces.one("worker.publish"))
    assert (parent_id(handle), trace_id(handle)) == (span_id(task), trace_id(task))
    assert linked(handle) == {span_id(publish), span_id(traces.one(f"claim {name}"))}
    assert parent_id(traces.one(f"ack {name}")) == span_id(handle)
    assert [span for span in traces.all() if "secret" in text_of(span)] == []


def test_a_consume_task_does_too(queue: RedisMessageQueue, traces: Traces, tracer: Tracer, instance: Instance) -> None:
    name = queue.name
    with RedisQueueHook() as hook:
        hook.get_queue(name).publish({"a": 1})
    with tracer.start_as_current_span("worker.consume"):
        operator = RedisQueueConsumeOperator(task_id="consume", queue_name=name, ack_policy="immediate")
        context: Any = {"ti": instance}
        (message,) = operator.execute(context)
    publish = traces.one(f"publish {name}")
    assert linked(traces.one(f"claim {name}")) == {span_id(publish)}
    assert parent_id(traces.one(f"claim {name}")) == span_id(traces.one("worker.consume"))
    assert f"{trace_id(publish):032x}" in message["headers"]["traceparent"], "the next task can continue the trace"


def test_a_sensor_notes_what_opened_its_gate(
    queue: RedisMessageQueue, traces: Traces, tracer: Tracer, instance: Instance
) -> None:
    queue.publish_many("abc")
    with tracer.start_as_current_span("worker.wait"):
        context: Any = {"ti": instance}
        RedisQueueSensor(task_id="wait", queue_name=queue.name, min_ready=3).execute(context)
    (event,) = traces.one("worker.wait").events
    found = dict(event.attributes or {})
    assert event.name == "gate open"
    assert (found["messaging.destination.name"], found["sluicegate.ready"]) == (queue.name, 3)


def test_a_trigger_notes_it_in_the_triggerer(queue: RedisMessageQueue, traces: Traces, tracer: Tracer) -> None:
    queue.publish_many("abc")

    async def run() -> Any:
        with tracer.start_as_current_span("trigger.wait"):
            return [
                event.payload["status"] async for event in RedisQueueTrigger(queue_name=queue.name, min_ready=3).run()
            ]

    assert asyncio.run(run()) == ["open"]
    (event,) = traces.one("trigger.wait").events
    assert (event.attributes or {})["sluicegate.ready"] == 3


def test_an_asyncio_queue_of_a_hook_is_traced(queue: RedisMessageQueue, traces: Traces, tracer: Tracer) -> None:
    async def publish() -> None:
        async with RedisQueueHook() as hook:
            await (await hook.aget_queue(queue.name)).publish({"id": 1})

    with tracer.start_as_current_span("trigger.publish"):
        asyncio.run(publish())
    assert parent_id(traces.one(f"publish {queue.name}")) == span_id(traces.one("trigger.publish"))


@pytest.mark.usefixtures("traces")
def test_nothing_is_traced_where_airflow_traces_nothing(
    queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "False")
    with RedisQueueHook() as hook:
        hook.get_queue(queue.name).publish("a")
    assert not is_instrumented()
    assert queue.peek(1)[0].headers == {}


def test_a_tracer_of_the_program_s_own_stays(traces: Traces) -> None:
    instrument(traces.provider)
    own = spans.tracer
    follow_airflow()
    assert spans.tracer is own
