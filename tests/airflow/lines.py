"""A task's log, for assertions."""

from __future__ import annotations

from typing import Any


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.text = ""

    def _keep(self, event: str, *args: Any) -> None:
        self.text += event % args + "\n"

    debug = info = warning = error = _keep
