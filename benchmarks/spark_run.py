"""The Spark figures, step after step in one session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import spark_drain, spark_load, spark_million, spark_stream, spark_writer
from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import Bench, bench

__all__ = ["steps"]

Measure = Callable[..., dict[str, Figures]]
Judge = Callable[[dict[str, Figures]], list[Bar]]
_STEPS: dict[str, tuple[Measure, Judge]] = {
    "drain": (spark_drain.run, spark_drain.bars),
    "load": (spark_load.run, spark_load.bars),
    "stream": (spark_stream.run, spark_stream.bars),
    "writer": (spark_writer.run, spark_writer.bars),
    "million": (spark_million.run, spark_million.bars),
}


def steps(settings: Settings) -> Iterator[Step]:
    """Yield the steps in order; the server is emptied between them."""
    each = _each(settings)
    with bench() as shared:
        first = {"count": settings["million"]}
        yield "first million", partial(_measure, shared, spark_million.first, lambda _: [], first)
        _warm(shared)
        for name, (measure, judge) in _STEPS.items():
            yield name, partial(_measure, shared, measure, judge, each[name])


def _measure(shared: Bench, measure: Measure, judge: Judge, settings: dict[str, Any]) -> Found:
    shared.client.flushall()
    figures = measure(shared, **settings)
    return Found(figures, judge(figures))


def _each(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the keyword arguments of each `run`."""
    return {
        "drain": {"rounds": settings["spark_rounds"], "limit": settings["flights"] or None},
        "load": {
            "sizes": settings["drains"],
            "lease_sizes": settings["leases"],
            "held_seconds": settings["handler_seconds"],
            "rounds": settings["drain_rounds"],
        },
        "stream": {"idle_seconds": settings["idle"], "batches": settings["micro_batches"]},
        "writer": {"count": settings["written"], "rounds": settings["drain_rounds"]},
        "million": {"count": settings["million"], "rounds": settings["drain_rounds"]},
    }


def _warm(shared: Bench) -> None:
    """Run a first job, because it starts Python workers, whose start is not measured."""
    assert shared.spark.range(2).mapInArrow(lambda batches: batches, "id long").count() == 2
