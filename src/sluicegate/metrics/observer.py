"""Measures what one process publishes, claims, holds and handles, through the events of its queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from sluicegate import checks
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.metrics.catalogue import CLIENT_METRICS

__all__ = ["MetricsObserver", "instrument"]

_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WORK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
_TIMED = frozenset(
    {
        EventOperation.PUBLISH,
        EventOperation.CLAIM,
        EventOperation.TAKE_OVER,
        EventOperation.ATTACH,
        EventOperation.EXTEND,
        EventOperation.ACK,
        EventOperation.NACK,
        EventOperation.RELEASE,
        EventOperation.SETTLE,
    }
)
NO_HANDLER, OTHER_HANDLER = "", "other"


class _Instruments:
    """The metrics of one registry, which all observers with that registry share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        named = {each.name.removeprefix("sluicegate_client_"): each for each in CLIENT_METRICS}

        def histogram(name: str, buckets: Sequence[float]) -> Histogram:
            of = named[name]
            return Histogram(of.name, of.help, of.labels, buckets=buckets, registry=registry)

        def counter(name: str) -> Counter:
            of = named[name]
            return Counter(of.name, of.help, of.labels, registry=registry)

        self.operation_seconds = histogram("operation_duration_seconds", _CALL_BUCKETS)
        self.hold_seconds = histogram("hold_duration_seconds", _WORK_BUCKETS)
        self.handle_seconds = histogram("handle_duration_seconds", _WORK_BUCKETS)
        self.messages = counter("messages_total")
        self.retries = counter("retries_total")


_instruments: WeakKeyDictionary[CollectorRegistry, _Instruments] = WeakKeyDictionary()
_lock = Lock()


def _instruments_of(registry: CollectorRegistry) -> _Instruments:
    with _lock:
        if registry not in _instruments:
            _instruments[registry] = _Instruments(registry)
        return _instruments[registry]


class MetricsObserver:
    """Counts and times the events of queues; give it to a queue as `on_event`.

    Any number of queues and observers may share a registry. Labels are names of queues, of operations and outcomes, and
    the types that handlers are registered for; never a payload, an id or the text of an error.

    Args:
        registry: where its metrics are registered.
        then: called with each event afterwards, such as the `on_event` that the queue had before; it may be async in
            an asyncio queue.
        max_handlers: how many types of messages have a label of their own; the rest are `other`.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        then: Callable[[QueueEvent], Any] | None = None,
        max_handlers: int = 100,
    ) -> None:
        checks.count("max_handlers", max_handlers)
        self._instruments = _instruments_of(registry)
        self._then = then
        self._max_handlers = max_handlers
        self._handlers: set[str] = set()

    def __call__(self, event: QueueEvent) -> Any:
        """Count and time an event, and return what `then` returns."""
        self.observe(event, (event.queue, "", ""))
        return self._then(event) if self._then is not None else None

    def observe(self, event: QueueEvent, place: tuple[str, str, str]) -> None:
        """Count and time an event of a place, whose labels are `queue`, `stream` and `group`."""
        to, operation, outcome = self._instruments, event.operation, event.outcome
        if outcome is EventOutcome.RETRY:
            to.retries.labels(*place, operation.value).inc()
            return
        if outcome is EventOutcome.START:
            return
        seconds = event.duration_seconds
        if operation is EventOperation.HANDLE:
            if seconds is not None:
                to.handle_seconds.labels(*place, self._handler(event), outcome.value).observe(seconds)
            return
        if event.count:
            to.messages.labels(*place, operation.value, outcome.value).inc(event.count)
        if seconds is not None and operation in _TIMED:
            to.operation_seconds.labels(*place, operation.value, outcome.value).observe(seconds)
        if event.held_seconds is not None:
            verdict = operation if outcome is EventOutcome.SUCCESS else outcome
            to.hold_seconds.labels(*place, verdict.value).observe(event.held_seconds)

    def _handler(self, event: QueueEvent) -> str:
        """Return the type that a handler was found by; a type without a handler is whatever a publisher writes."""
        name = event.message_type
        if name is None or event.outcome is EventOutcome.UNHANDLED:
            return NO_HANDLER
        if name not in self._handlers:
            if len(self._handlers) >= self._max_handlers:
                return OTHER_HANDLER
            self._handlers.add(name)
        return name


class Instrumented(Protocol):
    """A queue, a queue of jobs, a stream or a group, of either flavour."""

    @property
    def session(self) -> Any: ...


def instrument(queue: Instrumented, observer: MetricsObserver | None = None) -> MetricsObserver:
    """Measure a queue, a queue of jobs, a stream or a group that exists already, beside its own `on_event`.

    Unlike an observer given as `on_event`, this labels streams and groups as such. Do it before a worker of the queue
    starts. Each group of a stream is instrumented by itself.

    Args:
        queue: of either flavour.
        observer: with the registry to use; None: one with the default registry.

    Returns:
        The observer.
    """
    observed = observer or MetricsObserver()
    session = queue.session
    place = labels_of_keys(session.keys)
    session.runner.observe(lambda event: observed.observe(event, place))
    return observed


def labels_of_keys(keys: QueueKeys) -> tuple[str, str, str]:
    """Return the values of the labels of a place by its keys: `queue`, `stream` and `group`."""
    return ("", keys.name, keys.group) if isinstance(keys, StreamKeys) else (keys.name, "", "")
