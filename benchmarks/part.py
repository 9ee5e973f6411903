"""One part of the benchmark in a process of its own: what its steps found, and which of them failed.

A step that raises is a failure of that step, and the next one runs; results are written after each step, so that
they remain when the process dies.

Usage: python -m benchmarks.part MODULE:FUNCTION SETTINGS OUTPUT     SETTINGS: JSON, handed to the function
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Bar, Figures, last_line

__all__ = ["Found", "Settings", "Step", "main", "write"]

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What one step found.

    Attributes:
        figures: tables by their title.
        bars: promises held against what was measured.
        versions: of what was measured, by mode.
    """

    figures: dict[str, Figures]
    bars: list[Bar] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)


Step = tuple[str, Callable[[], Found]]
Steps = Callable[[Settings], Iterator[Step]]


def main(target: str, settings: Settings, output: Path) -> None:
    """Run all steps of a part."""
    result: dict[str, Any] = {"bars": [], "figures": {}, "versions": {}, "seconds": {}, "failed": []}
    write(output, result)
    at = "start"
    try:
        for name, measure in _steps(target)(settings):
            at = name
            start = time.monotonic()
            try:
                found = measure()
            except Exception as error:
                _note(result, name, error)
            else:
                result["figures"] |= found.figures
                result["bars"] += [bar.to_dict() for bar in found.bars]
                result["versions"] |= found.versions
            result["seconds"][name] = round(time.monotonic() - start, 1)
            print(f"  {name}: {result['seconds'][name]} s", flush=True)
            write(output, result)
    except Exception as error:
        _note(result, f"around {at}", error)
        write(output, result)


def write(output: Path, result: dict[str, Any]) -> None:
    """Replace the file at once: a reader finds the old or the new one, never half of it."""
    partial = output.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    partial.replace(output)


def _steps(target: str) -> Steps:
    module, function = target.split(":")
    steps: Steps = getattr(importlib.import_module(module), function)
    return steps


def _note(result: dict[str, Any], step: str, error: Exception) -> None:
    traceback.print_exception(error)
    result["failed"].append({"step": step, "error": type(error).__name__, "line": last_line(str(error))})


if __name__ == "__main__":
    chosen, given, path = sys.argv[1:]
    main(chosen, json.loads(given), Path(path))
