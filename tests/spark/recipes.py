"""The programs of examples/spark as modules, and ways of crashing them between a write and its ack."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sluicegate import Lease

__all__ = ["RECIPES", "crash_after_writing", "order", "recipe"]

RECIPES = Path(__file__).parents[2] / "examples" / "spark"


def recipe(name: str) -> ModuleType:
    """Import an example anew; its module has no importable name, so its functions are pickled as a script's are."""
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def order(number: int) -> dict[str, Any]:
    """Return what the recipes expect in the queue."""
    return {"order_id": f"o{number}", "customer": f"c{number % 7}", "amount": number % 100 + 0.5}


def crash_after_writing(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, armed: Path, *, again: bool = False
) -> None:
    """Let the handlers of a drain recipe kill their worker when their output is in place, before anything is acked.

    Args:
        monkeypatch: of the test.
        module: a recipe with a `writer` function.
        armed: a file; they crash while it exists.
        again: leave it there, so that every attempt crashes.
    """
    writer: Callable[..., Any] = module.writer

    def crashing_writer(where: Path) -> Callable[..., object]:
        write = writer(where)

        @functools.wraps(write)  # with its annotations, which say what it takes
        def crashing(*arguments: object) -> None:
            write(*arguments)
            if armed.exists():
                if not again:
                    armed.unlink()
                Lease.settle = lambda *verdicts: os.kill(os.getpid(), signal.SIGKILL)  # what is next

        return crashing

    monkeypatch.setattr(module, "writer", crashing_writer)
    armed.touch()
