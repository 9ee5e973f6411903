"""A message's publish, claim, handling and verdict are spans that hang together, in every flavour and place."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
import redis
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode, Tracer

import sluicegate.asyncio
from sluicegate import RedisMessageQueue, spans
from sluicegate.draining.local import drain
from sluicegate.errors import LeaseLostError
from sluicegate.jobs import RedisJobQueue
from sluicegate.streams import RedisStreamQueue
from sluicegate.tracing import context_of, instrument, is_instrumented, links_of, uninstrument
from sluicegate.worker import Worker
from tests.support import state
from tests.support.flavours import FLAVOURS, Flavour, Loop, MakeGroup, MakeQueue, MakeStream
from tests.support.servers import RedisServer
from tests.support.traces import Traces, linked, parent_id, span_id, text_of, trace_id


@pytest.fixture(params=[FLAVOURS[0], FLAVOURS[2]], ids=["sync", "asyncio"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Yield a loop whose calls share what is current, as those of one task do."""
    made = Loop(copy_context())
    yield made
    made.close()


def attributes(traces: Traces, name: str) -> dict[str, Any]:
    return dict(traces.one(name).attributes or {})


def test_one_message_is_one_trace_from_publish_to_ack(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    queue.publish({"order": 1})
    with queue.claim(lease_id="mine") as lease:
        (message,) = lease
    assert traces.names() == ["publish orders", "claim orders", "ack orders", "handle orders"]
    publish, claim, ack, handle = traces.all()
    assert len({trace_id(span) for span in traces.all()}) == 1
    assert [parent_id(span) for span in (publish, claim, handle, ack)] == [
        None, span_id(publish), span_id(publish), span_id(handle),
    ]  # fmt: skip
    assert linked(handle) == {span_id(publish), span_id(claim)}
    assert [span.kind for span in (publish, claim, handle, ack)] == [
        SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT,
    ]  # fmt: skip
    found = attributes(traces, "handle orders")
    assert found["messaging.system"] == "sluicegate"
    assert found["messaging.destination.name"] == "orders"
    assert (found["messaging.operation.name"], found["messaging.operation.type"]) == ("handle", "process")
    assert found["messaging.message.id"] == message.id == attributes(traces, "publish orders")["messaging.message.id"]
    assert found["sluicegate.lease.id"] == "mine"
    types = [attributes(traces, span.name)["messaging.operation.type"] for span in (publish, claim, ack)]
    assert types == ["send", "receive", "settle"]


def test_a_batch_links_to_every_publish_that_its_messages_come_from(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    queue.publish_many("abc")
    queue.publish("d")
    with queue.claim(10):
        pass
    publishes = {span_id(span) for span in traces.named("publish orders")}
    claim, handle = traces.one("claim orders"), traces.one("handle orders")
    assert len(publishes) == 2
    assert linked(claim) == publishes
    assert linked(handle) == publishes | {span_id(claim)}
    assert parent_id(handle) is None
    assert attributes(traces, "handle orders")["messaging.batch.message_count"] == 4
    assert "messaging.message.id" not in attributes(traces, "handle orders")


def test_work_continues_the_trace_that_is_current(client: redis.Redis, traces: Traces, tracer: Tracer) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    with tracer.start_as_current_span("task"), queue.claim():
        pass
    task = traces.one("task")
    assert {parent_id(traces.one(f"{verb} orders")) for verb in ("claim", "handle")} == {span_id(task)}
    assert linked(traces.one("handle orders")) >= {span_id(traces.one("publish orders"))}


def test_what_a_handler_does_is_part_of_its_span(client: redis.Redis, traces: Traces, tracer: Tracer) -> None:
    queue = RedisMessageQueue("orders", client=client)
    mails = RedisMessageQueue("mails", client=client)
    queue.publish("a")
    with queue.process_message(), tracer.start_as_current_span("compute"):
        mails.publish("b")
    handle = traces.one("handle orders")
    assert parent_id(traces.one("compute")) == span_id(handle)
    assert parent_id(traces.one("publish mails")) == span_id(traces.one("compute"))
    assert not trace.get_current_span().get_span_context().is_valid


def test_it_is_current_in_an_asyncio_block_too(server: RedisServer, traces: Traces, tracer: Tracer) -> None:
    async def main() -> None:
        async with sluicegate.asyncio.RedisMessageQueue("orders", url=server.url) as queue:
            await queue.publish("a")
            async with queue.process_message():
                await asyncio.sleep(0)
                with tracer.start_as_current_span("compute"):
                    pass
            await asyncio.gather(*(one(queue, number) for number in range(5)))

    async def one(queue: Any, number: int) -> None:
        with tracer.start_as_current_span(f"caller {number}"):
            await queue.publish(str(number))

    asyncio.run(main())
    assert parent_id(traces.one("compute")) == span_id(traces.one("handle orders"))
    callers = {span_id(traces.one(f"caller {number}")) for number in range(5)}
    assert {parent_id(span) for span in traces.named("publish orders")} == {None, *callers}


def test_a_handler_that_fails_marks_its_span_without_the_text(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    queue.publish("a")
    lease = queue.claim()
    with pytest.raises(ValueError, match="secret"), lease:
        raise ValueError("secret")
    handle = traces.one("handle orders")
    assert handle.status.status_code is StatusCode.ERROR
    assert (handle.attributes or {})["error.type"] == "ValueError"
    assert parent_id(traces.one("nack orders")) == span_id(handle)
    assert not [span for span in traces.all() if "secret" in text_of(span)]


def test_a_verdict_that_is_too_late_is_a_failed_span(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    lease = queue.claim()
    state.expire(client, "orders")
    queue.claim().release()
    traces.clear()
    with pytest.raises(LeaseLostError):
        lease.ack()
    ack = traces.one("ack orders")
    assert (ack.status.status_code, (ack.attributes or {})["error.type"]) == (StatusCode.ERROR, "LeaseLostError")


def test_verdicts_outside_a_block_link_to_the_claim(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("ab")
    lease = queue.claim(2)
    lease.ack(lease.messages[0])
    lease.nack(error=ValueError("secret"))
    for verb in ("ack", "nack"):
        assert linked(traces.one(f"{verb} orders")) >= {span_id(traces.one("claim orders"))}


def test_different_verdicts_in_one_call_are_one_span(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("abc")
    with pytest.raises(ValueError, match="no"), queue.claim(3, on_batch_error="ack") as lease:  # noqa: PT012
        for message in lease:
            if message.text() == "b":
                raise ValueError("no")
    found = attributes(traces, "settle orders")
    assert {name: found[f"sluicegate.{name}"] for name in ("ack", "nack", "release")} == {
        "ack": 1, "nack": 1, "release": 1,
    }  # fmt: skip


def test_claims_that_find_nothing_make_no_span(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    assert not queue.claim()
    with queue.claim():
        pass
    assert traces.names() == []


def test_duplicates_and_failures_of_a_publish(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish_many({"id": number} for number in (1, 2, 2))
    found = attributes(traces, "publish orders")
    assert (found["messaging.batch.message_count"], found["sluicegate.duplicates"]) == (3, 1)
    traces.clear()
    with pytest.raises(TypeError):
        queue.publish(object())
    publish = traces.one("publish orders")
    assert (publish.status.status_code, (publish.attributes or {})["error.type"]) == (StatusCode.ERROR, "TypeError")


def test_publishing_in_chunks_is_one_span(client: redis.Redis, traces: Traces, tracer: Tracer) -> None:
    queue = RedisMessageQueue("orders", client=client)
    with tracer.start_as_current_span("load"):
        for _ in queue.publish_chunks("abcde", batch_size=2):
            assert trace.get_current_span().is_recording()
            with tracer.start_as_current_span("between"):
                pass
    publish = traces.one("publish orders")
    assert parent_id(publish) == span_id(traces.one("load"))
    assert (publish.attributes or {})["messaging.batch.message_count"] == 5
    assert {parent_id(span) for span in traces.named("between")} == {span_id(traces.one("load"))}


def test_a_batch_as_a_unit_is_one_span(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    queue.batch("abc", batch_id="load-1")
    assert attributes(traces, "publish orders")["messaging.batch.message_count"] == 3


def test_streams_and_groups(make_stream: MakeStream, traces: Traces) -> None:
    stream = make_stream("events")
    stream.publish("a")
    for name in ("billing", "audit"):
        with stream.group(name, start="beginning", consumer="me").claim():
            pass
    publish = traces.one("publish events")
    handles = traces.named("handle events")
    assert {(span.attributes or {})["messaging.consumer.group.name"] for span in handles} == {"billing", "audit"}
    assert {(span.attributes or {})["messaging.client.id"] for span in handles} == {"me"}
    assert {parent_id(span) for span in handles} == {span_id(publish)}


def test_entries_that_another_client_appended(make_group: MakeGroup, client: redis.Redis, traces: Traces) -> None:
    group = make_group("events", "billing", start="beginning")
    group.create("beginning")
    stream = RedisStreamQueue("events", client=client)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.xadd(stream.key.stream, {"payload": "a", "headers": '{"traceparent": "' + parent + '"}'})
    client.xadd(stream.key.stream, {"anything": "b"})
    with group.claim(2):
        pass
    assert attributes(traces, "handle events")["messaging.batch.message_count"] == 2


def test_jobs(client: redis.Redis, traces: Traces) -> None:
    jobs = RedisJobQueue("mails", client=client)
    jobs.enqueue({"to": "a"}, kind="mail")
    with jobs.claim_jobs() as lease:
        (job,) = lease.jobs
        job.complete({"sent": True})
    assert job.headers["kind"] == "mail"
    assert traces.names() == ["publish mails", "claim mails", "ack mails", "handle mails"]
    assert len({trace_id(span) for span in traces.all()}) == 1


def test_a_worker_s_handlers_run_in_their_message_s_span(client: redis.Redis, traces: Traces, tracer: Tracer) -> None:
    queue = RedisMessageQueue("orders", client=client)
    worker = Worker(queue, concurrency=2)

    @worker.handler("created")
    def created(payload: Any) -> None:
        with tracer.start_as_current_span(f"compute {payload['n']}"):
            if payload["n"] == 2:
                raise ValueError("secret")

    for number in range(3):
        queue.publish({"type": "created", "n": number})
    worker.run_once(3)
    publishes = [span_id(span) for span in traces.named("publish orders")]
    for number in range(3):
        compute = traces.one(f"compute {number}")
        (handle,) = [span for span in traces.named("handle orders") if span_id(span) == parent_id(compute)]
        assert parent_id(handle) == publishes[number]
        assert handle.status.status_code is (StatusCode.ERROR if number == 2 else StatusCode.UNSET)


def test_an_asyncio_worker_does_the_same(server: RedisServer, traces: Traces, tracer: Tracer) -> None:
    import sluicegate.asyncio.worker

    async def main() -> None:
        async with sluicegate.asyncio.RedisMessageQueue("orders", url=server.url) as queue:
            worker = sluicegate.asyncio.worker.Worker(queue)

            @worker.handler("created")
            async def created(payload: Any) -> None:
                await asyncio.sleep(0)
                with tracer.start_as_current_span(f"compute {payload['n']}"):
                    pass

            for number in range(2):
                await queue.publish({"type": "created", "n": number})
            await worker.run_once(2)

    asyncio.run(main())
    publishes = [span_id(span) for span in traces.named("publish orders")]
    for number in range(2):
        compute = traces.one(f"compute {number}")
        (handle,) = [span for span in traces.named("handle orders") if span_id(span) == parent_id(compute)]
        assert parent_id(handle) == publishes[number]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_drain_continues_its_caller_s_trace(
    client: redis.Redis, server: RedisServer, traces: Traces, tracer: Tracer, workers: int
) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many(str(number) for number in range(10))

    def process(batch: list[Any]) -> None:
        with tracer.start_as_current_span("compute"):
            pass

    with tracer.start_as_current_span("task"):
        drain(queue, process, workers=workers, worker_kind="thread", batch_size=5, progress=False)
    task, handles = traces.one("task"), traces.named("handle orders")
    assert sum((span.attributes or {})["messaging.batch.message_count"] for span in handles) == 10  # type: ignore[misc]
    assert {parent_id(span) for span in handles} == {span_id(task)}
    assert {parent_id(span) for span in traces.named("compute")} <= {span_id(span) for span in handles}
    assert {parent_id(span) for span in traces.named("ack orders")} <= {span_id(span) for span in handles}


def test_another_process_continues_the_trace(client: redis.Redis, server: RedisServer, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    program = f"""
from sluicegate import RedisMessageQueue
from tests.support.traces import Traces, trace_id, parent_id
from sluicegate.tracing import instrument
traces = Traces()
instrument(traces.provider)
with RedisMessageQueue("orders", url={server.url!r}) as queue, queue.claim():
    pass
handle = traces.one("handle orders")
print(trace_id(handle), parent_id(handle))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    publish = traces.one("publish orders")
    assert done.stdout.split() == [str(trace_id(publish)), str(span_id(publish))]


# ---------------------------------------------------------------------- headers


def test_the_caller_s_headers_stay_and_the_context_is_w3c(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue()
    queue.publish("a", headers={"who": "me", "traceparent": "of an earlier hop"})
    (message,) = queue.claim().messages
    publish = traces.one("publish orders")
    assert publish.context is not None
    flags = publish.context.trace_flags
    assert message.headers == {
        "who": "me",
        "traceparent": f"00-{trace_id(publish):032x}-{span_id(publish):016x}-{flags:02x}",
    }


def test_headers_without_room_stay_as_they_are(client: redis.Redis, traces: Traces) -> None:
    from sluicegate.core.bounds import MAX_HEADERS_BYTES

    headers = {"bulk": "x" * (MAX_HEADERS_BYTES - 20)}
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a", headers=headers)
    assert queue.claim().messages[0].headers == headers
    assert traces.one("publish orders").status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("header", ["junk", "00-00000000000000000000000000000000-0000000000000000-00", ""])
def test_a_context_that_is_none_begins_a_trace(client: redis.Redis, traces: Traces, header: str) -> None:
    uninstrument()
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a", headers={"traceparent": header})
    instrument(traces.provider)
    with queue.claim():
        pass
    assert parent_id(traces.one("handle orders")) is None
    assert linked(traces.one("handle orders")) == {span_id(traces.one("claim orders"))}


def test_links_are_bounded(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    for number in range(140):
        queue.publish(str(number))
    lease = queue.claim(200)
    assert len(links_of(lease.messages)) == 128
    lease.ack()


def test_a_program_may_continue_a_message_s_trace_itself(client: redis.Redis, traces: Traces, tracer: Tracer) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("ab")
    messages = queue.claim(2).messages
    tracer.start_span("by hand", context=context_of(messages[0]), links=links_of(messages)).end()
    span, publish = traces.one("by hand"), traces.one("publish orders")
    assert (parent_id(span), linked(span)) == (span_id(publish), {span_id(publish)})


def test_nothing_of_a_message_but_its_id_is_in_a_span(make_queue: MakeQueue, traces: Traces) -> None:
    queue = make_queue(get_deduplication_key="id", max_delivery_count=2)
    queue.publish({"id": "secret-key", "text": "secret-payload"}, headers={"who": "secret-header"})
    queue.claim().nack(error=ValueError("secret-error"))
    with queue.claim():
        pass
    assert len(traces.all()) >= 5
    assert [text_of(span) for span in traces.all() if "secret" in text_of(span)] == []


# ---------------------------------------------------------------------- on and off


def test_without_instrument_nothing_is_added(make_queue: MakeQueue, traces: Traces, tracer: Tracer) -> None:
    uninstrument()
    assert not is_instrumented()
    queue = make_queue()
    with tracer.start_as_current_span("task"):
        queue.publish("a")
        with queue.claim() as lease:
            assert lease.messages[0].headers == {}
    assert traces.names() == ["task"]


def test_without_an_sdk_a_current_context_is_still_carried(client: redis.Redis) -> None:
    instrument(trace.NoOpTracerProvider())
    try:
        queue = RedisMessageQueue("orders", client=client)
        parent = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
        with trace.use_span(trace.NonRecordingSpan(parent)):
            queue.publish("a")
        queue.publish("b")
        one, other = queue.claim(2).messages
    finally:
        uninstrument()
    assert one.headers == {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01"}
    assert other.headers == {}


class Broken(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("broken")

    def on_end(self, span: Any) -> None:
        raise RuntimeError("broken")


def test_a_tracer_that_raises_changes_no_outcome(make_queue: MakeQueue, client: redis.Redis) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    instrument(provider)
    try:
        queue = make_queue()
        assert queue.publish("a")
        with queue.claim() as lease:
            assert len(lease) == 1
    finally:
        uninstrument()
    assert queue.stats().acked == 1


def test_turned_off_in_the_middle_of_a_block(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    with queue.claim():
        uninstrument()
    assert queue.stats().acked == 1
    assert traces.names() == ["publish orders", "claim orders", "handle orders"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_heartbeats_and_other_threads_make_no_spans(client: redis.Redis, traces: Traces) -> None:
    queue = RedisMessageQueue("orders", client=client, visibility_timeout_seconds=3, heartbeat_interval_seconds=0.05)
    queue.publish("a")
    extended = threading.Event()
    with queue.claim() as lease:
        before = lease._batch.confirmed_at
        for _ in range(200):
            if lease._batch.confirmed_at > before:
                break
            extended.wait(0.05)
        assert lease._batch.confirmed_at > before
    assert traces.names() == ["publish orders", "claim orders", "ack orders", "handle orders"]


def test_the_seam_is_one_look_without_a_tracer(monkeypatch: pytest.MonkeyPatch, client: redis.Redis) -> None:
    def refuse(*_: Any, **__: Any) -> Callable[..., Any]:
        raise AssertionError("the tracer was used")

    monkeypatch.setattr("sluicegate.lease.Lease.traced", refuse)
    monkeypatch.setattr("sluicegate._lease_operations._send_traced", refuse)
    assert spans.tracer is None
    queue = RedisMessageQueue("orders", client=client)
    queue.publish("a")
    with queue.claim():
        pass
    assert queue.stats().acked == 1
