"""Hooks around handlers: their order, and what their exceptions mean."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest
import tenacity

from sluicegate import HandlerFailedError, OptionTypeError
from sluicegate.worker import Delivery, Middleware, Reject, Retry
from tests.support.flavours import Flavour
from tests.worker.conftest import MakeWorker

TENANT: ContextVar[str] = ContextVar("tenant")


class Recording(Middleware):
    """Notes the hooks that are called, and raises where it is asked to."""

    def __init__(self, name: str, calls: list[str], fails: str = "", error: Exception | None = None) -> None:
        self.name = name
        self.calls = calls
        self.fails = fails
        self.error = error or LookupError(f"{name} {fails}")

    def before(self, delivery: Delivery) -> None:
        self._note("before")

    def after(self, delivery: Delivery, result: Any) -> None:
        self._note(f"after {result}")

    def on_error(self, delivery: Delivery, error: Exception) -> None:
        self._note(f"on_error {type(error).__name__}")

    def _note(self, what: str) -> None:
        self.calls.append(f"{self.name} {what}")
        if self.fails and what.startswith(self.fails):
            raise self.error


def handle_once(
    queue: Any, make_worker: MakeWorker, middleware: list[Middleware], calls: list[str], result: Any = "done"
) -> Any:
    worker = make_worker(queue, middleware=middleware[:1], retry=Retry(max_attempts=2, backoff=tenacity.wait_fixed(60)))
    for each in middleware[1:]:
        worker.use(each)

    def handle(_: Any) -> Any:
        calls.append("handler")
        if isinstance(result, Exception):
            raise result
        return result

    worker.register("created", handle)
    queue.publish({"type": "created"})
    return worker.run_once()


def test_hooks_run_in_order_before_and_in_reverse_order_after(queue: Any, make_worker: MakeWorker) -> None:
    calls: list[str] = []
    report = handle_once(queue, make_worker, [Recording("a", calls), Recording("b", calls)], calls)

    assert report.handled == 1
    assert calls == ["a before", "b before", "handler", "b after done", "a after done"]


@pytest.mark.parametrize(
    ("result", "kind"), [(ValueError("no"), "ValueError"), (False, "HandlerFailedError"), (Reject("no"), "Reject")]
)
def test_on_error_runs_in_reverse_order_for_every_failure(
    queue: Any, make_worker: MakeWorker, result: Any, kind: str
) -> None:
    calls: list[str] = []
    report = handle_once(queue, make_worker, [Recording("a", calls), Recording("b", calls)], calls, result)

    assert report.failed + report.rejected == 1
    assert calls == ["a before", "b before", "handler", f"b on_error {kind}", f"a on_error {kind}"]


def test_a_before_that_raises_keeps_the_handler_from_running(queue: Any, make_worker: MakeWorker) -> None:
    calls: list[str] = []
    middleware = [Recording("a", calls), Recording("b", calls, "before"), Recording("c", calls)]
    report = handle_once(queue, make_worker, middleware, calls)

    assert (report.failed, queue.depth().delayed) == (1, 1)
    assert calls == ["a before", "b before", "a on_error LookupError"]


def test_an_after_that_raises_fails_the_message(queue: Any, make_worker: MakeWorker) -> None:
    calls: list[str] = []
    middleware = [Recording("a", calls), Recording("b", calls, "after")]
    report = handle_once(queue, make_worker, middleware, calls)

    assert (report.failed, queue.depth().delayed) == (1, 1)
    assert calls[2:] == ["handler", "b after done", "b on_error LookupError", "a on_error LookupError"]


def test_what_on_error_raises_changes_nothing(
    queue: Any, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    middleware = [Recording("a", calls), Recording("b", calls, "on_error")]
    report = handle_once(queue, make_worker, middleware, calls, ValueError("no"))

    assert (report.failed, queue.depth().delayed) == (1, 1)
    assert calls[3:] == ["b on_error ValueError", "a on_error ValueError"]
    assert "on_error of Recording raised LookupError" in caplog.messages


def test_on_error_can_turn_a_failure_into_a_rejection(queue: Any, make_worker: MakeWorker) -> None:
    calls: list[str] = []
    middleware = [Recording("a", calls), Recording("b", calls, "on_error", Reject("hopeless", reason="mapped"))]
    report = handle_once(queue, make_worker, middleware, calls, ValueError("no"))

    assert (report.rejected, report.buried) == (1, 1)
    assert calls[3:] == ["b on_error ValueError", "a on_error Reject"]
    (dead,) = queue.peek(1, state="dead")
    assert (dead.reason, dead.error) == ("mapped", "hopeless")


def test_no_hook_runs_for_a_message_that_reaches_no_handler(queue: Any, make_worker: MakeWorker) -> None:
    calls: list[str] = []
    worker = make_worker(queue, middleware=[Recording("a", calls)], concurrency=2)

    def typed(_: dict[str, Any]) -> None:
        calls.append("handler")

    worker.register("typed", typed)
    queue.publish("no JSON", headers={"type": "typed"})
    queue.publish({"type": "unknown"})

    report = worker.run_once()
    assert (report.invalid, report.unhandled) == (1, 1)
    assert calls == []


def test_a_handler_sees_what_a_hook_puts_into_its_context(queue: Any, make_worker: MakeWorker) -> None:
    class Tenant(Middleware):
        def before(self, delivery: Delivery) -> None:
            TENANT.set(delivery.message.headers["tenant"])

    worker, seen = make_worker(queue, middleware=[Tenant()]), []
    worker.register("created", lambda _: seen.append(TENANT.get("none")))
    queue.publish({"type": "created"}, headers={"tenant": "acme"})

    assert worker.run_once().handled == 1
    assert seen == ["acme"]


def test_async_hooks_are_awaited_by_asyncio_and_refused_by_threads(
    queue: Any, make_worker: MakeWorker, flavour: Flavour
) -> None:
    calls: list[str] = []

    class Async(Middleware):
        async def before(self, delivery: Delivery) -> None:
            calls.append("before")

        async def after(self, delivery: Delivery, result: Any) -> None:
            calls.append(f"after {result}")

        async def on_error(self, delivery: Delivery, error: Exception) -> None:
            calls.append(type(error).__name__)

    if not flavour.asyncio:
        with pytest.raises(OptionTypeError, match=r"Async\.before is async, and a worker of threads awaits nothing"):
            make_worker(queue, middleware=[Async()])
        return
    worker = make_worker(queue, middleware=[Async()])
    worker.register("good", lambda _: 7)
    worker.register("bad", lambda _: False)
    queue.publish({"type": "good"})
    queue.publish({"type": "bad"})
    worker.run_once()
    worker.run_once()
    assert calls == ["before", "after 7", "before", HandlerFailedError.__name__]


def test_middleware_is_an_object_of_its_class(queue: Any, make_worker: MakeWorker) -> None:
    with pytest.raises(OptionTypeError, match="middleware must be a Middleware, not a type"):
        make_worker(queue, middleware=[Recording])
