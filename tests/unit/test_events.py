"""What a queue passes to `on_event`; no callback alters an outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.asyncio.dispatch import emit as emit_async
from sluicegate.dispatch import emit
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

SECRET = "s3cr"
EVENT = QueueEvent(EventOperation.ACK, EventOutcome.SUCCESS, "orders", count=3)
OUTCOMES = (KeyboardInterrupt, SystemExit)


def emit_in_loop(on_event: Callable[[QueueEvent], Any], event: QueueEvent) -> None:
    asyncio.run(emit_async(on_event, event))


EMITS = pytest.mark.parametrize("emits_events", [emit, emit_in_loop], ids=["sync", "asyncio"])


def failing(_: QueueEvent) -> None:
    raise RuntimeError(SECRET)


def test_operations_and_outcomes_are_their_own_words() -> None:
    assert EventOperation.TAKE_OVER == "take_over"
    assert f"{EventOperation.PUBLISH}/{EventOutcome.SUCCESS}" == "publish/success"
    for member in (*EventOperation, *EventOutcome):
        assert member.value == member.name.lower()


def test_an_event_is_a_value_whose_error_stays_out_of_sight() -> None:
    event = dataclasses.replace(EVENT, error=ValueError(SECRET))
    assert event.exception_type == "ValueError"
    assert EVENT.exception_type is None
    assert SECRET not in repr(event)
    assert event == EVENT
    assert dataclasses.replace(EVENT, duration_seconds=0.25) == EVENT, "two of a kind"
    assert "duration_seconds=0.25" in repr(dataclasses.replace(EVENT, duration_seconds=0.25))
    assert dataclasses.replace(EVENT, delivery_count=2) != EVENT
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.count = 4  # type: ignore[misc]


@EMITS
def test_a_callback_is_told_the_event(emits_events: Callable[..., None]) -> None:
    reported: list[QueueEvent] = []
    emit(reported.append, EVENT)
    assert reported == [EVENT]


def test_asyncio_awaits_an_async_callback() -> None:
    reported: list[QueueEvent] = []

    async def on_event(event: QueueEvent) -> None:
        await asyncio.sleep(0)
        reported.append(event)

    emit_in_loop(on_event, EVENT)
    assert reported == [EVENT]


@EMITS
def test_what_a_callback_raises_is_logged_by_type_and_warned_of(
    emits_events: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sluicegate"), pytest.warns(RuntimeWarning, match="on_event raised Runtime"):
        emit(failing, EVENT)
    assert caplog.messages == ["on_event raised RuntimeError at ack/success of queue 'orders'"]
    assert SECRET not in caplog.text


def test_what_an_async_callback_raises_is_warned_of() -> None:
    async def on_event(event: QueueEvent) -> None:
        failing(event)

    with pytest.warns(RuntimeWarning, match="on_event raised RuntimeError"):
        emit_in_loop(on_event, EVENT)


@EMITS
def test_no_outcome_changes_where_warnings_are_errors(emits_events: Callable[..., None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emit(failing, EVENT)


@EMITS
def test_no_outcome_changes_when_a_log_handler_fails_too(emits_events: Callable[..., None]) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(record.name)

    handler, log = Failing(), logging.getLogger("sluicegate")
    log.addHandler(handler)
    try:
        with pytest.warns(RuntimeWarning):
            emit(failing, EVENT)
    finally:
        log.removeHandler(handler)


@EMITS
@pytest.mark.parametrize("end", OUTCOMES)
def test_a_callback_may_end_the_process(emits_events: Callable[..., None], end: type[BaseException]) -> None:
    def on_event(_: QueueEvent) -> None:
        raise end

    with pytest.raises(end):
        emit(on_event, EVENT)


def test_a_cancellation_in_a_callback_goes_through() -> None:
    async def on_event(_: QueueEvent) -> None:
        raise asyncio.CancelledError

    async def main() -> str:
        with pytest.raises(asyncio.CancelledError):
            await emit_async(on_event, EVENT)
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_sync_closes_what_an_async_callback_returns_and_names_the_asyncio_queue() -> None:
    made = []

    async def started() -> None: ...

    def on_event(_: QueueEvent) -> Any:
        made.append(started())
        return made[0]

    with pytest.warns(RuntimeWarning, match=r"use sluicegate\.asyncio\.RedisMessageQueue"):
        emit(on_event, EVENT)
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
