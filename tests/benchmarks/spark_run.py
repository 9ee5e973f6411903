"""The Spark figures, part after part in one session.

Usage: python -m tests.benchmarks.spark_run SETTINGS OUTPUT     SETTINGS: JSON, see `PARTS`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import spark_drain, spark_load, spark_million, spark_stream, spark_writer
from tests.benchmarks.report import Bar
from tests.benchmarks.spark_session import Bench, Figures, bench

__all__ = ["PARTS", "main"]

Measure = Callable[..., dict[str, Figures]]
Judge = Callable[[dict[str, Figures]], list[Bar]]
# Each takes its own settings: the keyword arguments of its `run`.
PARTS: dict[str, tuple[Measure, Judge]] = {
    "drain": (spark_drain.run, spark_drain.bars),
    "load": (spark_load.run, spark_load.bars),
    "stream": (spark_stream.run, spark_stream.bars),
    "writer": (spark_writer.run, spark_writer.bars),
    "million": (spark_million.run, spark_million.bars),
}


def main(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Run the parts that have settings, in their order; a server emptied between them."""
    found: dict[str, Any] = {"bars": [], "figures": {}}
    with bench() as shared:
        _warm(shared)
        for name, (measure, judge) in PARTS.items():
            if name in settings:
                shared.client.flushall()
                figures = measure(shared, **settings[name])
                found["figures"] |= figures
                found["bars"] += [bar.to_dict() for bar in judge(figures)]
    return found


def _warm(shared: Bench) -> None:
    """The first job of a session starts Python workers, which is not what is measured."""
    assert shared.spark.range(2).mapInArrow(lambda batches: batches, "id long").count() == 2


if __name__ == "__main__":
    asked, output = sys.argv[1:]
    Path(output).write_text(json.dumps(main(json.loads(asked))))
