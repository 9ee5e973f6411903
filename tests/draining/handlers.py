"""Handlers at the top level of a module, as worker processes need them; a folder says what to do and keeps traces."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from sluicegate import DrainContext, Message

SECONDS = 20.0


@dataclass(frozen=True)
class Traces:
    """Writes the numbers of each batch, and fails as its fields say."""

    folder: Path
    kill_on: int | None = None
    kill_always: bool = False
    raise_on: int | None = None
    hold: bool = False

    def __call__(self, batch: list[Message], ctx: DrainContext) -> None:
        numbers = [message.json()["n"] for message in batch]
        note = {"numbers": numbers, "pid": os.getpid(), "partition": ctx.partition, "attempt": ctx.attempt}
        name = uuid.uuid4().hex
        (self.folder / f".{name}").write_text(json.dumps(note))
        (self.folder / f".{name}").rename(self.folder / f"call-{name}")
        if self.kill_on in numbers and (ctx.attempt == 0 or self.kill_always):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.hold:
            self._hold()
        if self.raise_on in numbers:
            raise ValueError("bad")
        ctx.output_file(self.folder, ".json").write_text(json.dumps(numbers))

    def _hold(self) -> None:
        pause = threading.Event()
        for _ in range(int(SECONDS / 0.02)):
            if (self.folder / "go").exists():
                return
            pause.wait(0.02)
        raise SystemExit("nobody let this handler go")


@dataclass(frozen=True)
class Uncalled:
    """A handler whose module cannot make it anew in another process."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_refuse, ())

    def __call__(self, batch: list[Message]) -> None:
        raise AssertionError


def _refuse() -> None:
    raise ImportError("no module named that")


def calls(folder: Path) -> list[dict[str, object]]:
    return [json.loads(file.read_text()) for file in folder.glob("call-*")]


def written(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("[!.]*.json") for n in json.loads(file.read_text()))


async def coroutine(batch: list[Message]) -> None: ...
