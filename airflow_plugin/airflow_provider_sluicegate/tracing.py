"""Trace queues where Airflow traces its tasks, so that both are in one trace."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.loading import import_async

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    from sluicegate import Depth
    from sluicegate.place import Place

__all__ = ["afollow_airflow", "follow_airflow", "note_open_gate"]

_log = logging.getLogger(__name__)
_TRACING = "sluicegate.tracing"


def follow_airflow() -> None:
    """
    Trace the queues of this process if ``[traces] otel_on`` is true; otherwise nothing is imported.

    Airflow 3.3 makes the span of a task, or of a trigger, the current one, so what a queue does is part of it. A
    program that has called ``sluicegate.tracing.instrument`` itself keeps its tracer. It never raises.
    """
    if _is_on():
        from importlib import import_module

        try:
            _switch_on(import_module(_TRACING))
        except ImportError as error:
            _note_missing(error)


async def afollow_airflow() -> None:
    """Do the same on an event loop, which the import does not block."""
    if _is_on():
        try:
            _switch_on(await import_async(_TRACING))
        except ImportError as error:
            _note_missing(error)


def note_open_gate(places: Iterable[Place], depths: Mapping[Place, Depth]) -> None:
    """
    Note on the current span that a gate has opened, with the counts that opened it.

    :param places: the queues or groups that are watched.
    :param depths: what was read of each.
    """
    from sluicegate import spans

    if spans.tracer is None:
        return
    from sluicegate.tracing import note_depth

    for place in places:
        note_depth("gate open", place, depths[place])


def _is_on() -> bool:
    return bool(compat.conf.getboolean("traces", "otel_on", fallback=False))


def _switch_on(tracing: ModuleType) -> None:
    from sluicegate import spans

    if spans.tracer is None:
        tracing.instrument()


def _note_missing(error: ImportError) -> None:
    _log.warning("[traces] otel_on is true, and queues are not traced: %s", error)
