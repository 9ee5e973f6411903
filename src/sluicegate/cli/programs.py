"""Runs a program for messages: their payloads go to its stdin, and its exit code is the verdict."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from sluicegate.draining.context import DrainContext
    from sluicegate.message import Message

__all__ = ["Program", "ProgramFailedError"]

_TAIL_BYTES = 2000
_KILL_AFTER_SECONDS = 5.0


class ProgramFailedError(Exception):
    """The program ended with an exit code other than 0, or in time it did not end."""


class Program:
    """A program that works on a message, or on a batch of them.

    It gets the payload of a message on stdin, or with `batch` one JSON object per message and line, as `peek --json`
    prints them. Its environment has `SLUICEGATE_QUEUE`, `SLUICEGATE_LEASE_KEY`, and for a single message
    `SLUICEGATE_MESSAGE_ID`, `SLUICEGATE_DELIVERY_COUNT` and `SLUICEGATE_HEADERS` (JSON). It runs in a process group of
    its own, so that Ctrl-C lets it finish.

    Args:
        command: the program and its arguments, as a shell would split them; no shell is used.
        name: of the queue.
        timeout_seconds: after which it is ended, which is a failure; None for no bound.
        bury_on: exit codes that make a message a dead letter at once.
        release_on: exit codes that return a message uncounted.
        stopping: whether to begin no further message.
        stdout: where the program's output goes.

    Raises:
        ConfigurationError: the command cannot be split, or there is no such program.
    """

    def __init__(
        self,
        command: str,
        name: str,
        *,
        timeout_seconds: float | None = None,
        bury_on: Sequence[int] = (),
        release_on: Sequence[int] = (),
        stopping: Callable[[], bool] = lambda: False,
        stdout: IO[Any] | None = None,
    ) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise ConfigurationError(f"--exec cannot be split into words: {error}") from None
        if not self._command:
            raise ConfigurationError("--exec is blank; give a program and its arguments")
        if shutil.which(self._command[0]) is None:
            raise ConfigurationError(
                f"there is no program {self._command[0]!r}; no shell is used, so write for instance "
                "--exec \"sh -c 'jq .id | xargs echo'\" for a pipe"
            )
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._bury_on = frozenset(bury_on)
        self._release_on = frozenset(release_on)
        self._stopping = stopping
        self._stdout = stdout

    def each(self, messages: list[Message], context: DrainContext) -> None:
        """Run the program once per message."""
        for message in messages:
            if self._stopping():
                context.release(message)
                continue
            extra = {
                "SLUICEGATE_MESSAGE_ID": message.id,
                "SLUICEGATE_DELIVERY_COUNT": str(message.delivery_count),
                "SLUICEGATE_HEADERS": json.dumps(message.headers),
            }
            code, tail = self._run(message.payload, {"SLUICEGATE_LEASE_KEY": context.lease_key, **extra})
            self._settle(context, message, code, tail)

    def batch(self, messages: list[Message], context: DrainContext) -> None:
        """Run the program once for all messages; a failure splits them until the failing ones are alone."""
        from sluicegate.cli.messages import message_record
        from sluicegate.cli.output import to_json

        lines = "".join(f"{to_json(message_record(message))}\n" for message in messages)
        code, tail = self._run(lines.encode(errors="backslashreplace"), {"SLUICEGATE_LEASE_KEY": context.lease_key})
        self._settle(context, messages, code, tail)

    def _settle(self, context: DrainContext, what: object, code: int, tail: str) -> None:
        if code == 0:
            return
        error = ProgramFailedError(f"{_ending(code)}{f': {tail}' if tail else ''}")
        if code in self._bury_on:
            context.bury(what, error=error, reason="exit_code")
        elif code in self._release_on:
            context.release(what)
        else:
            raise error

    def _run(self, given: bytes, environment: dict[str, str]) -> tuple[int, str]:
        """Run the program; returns its exit code, and the end of what it wrote to stderr."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=self._stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "SLUICEGATE_QUEUE": self._name, **environment},
            process_group=0,
        )
        tail = _Tail(process.stderr)
        try:
            self._feed(process, given)
            code = process.wait(self._timeout_seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise ProgramFailedError(f"not ended within {self._timeout_seconds:g} s") from None
        except BaseException:
            _end(process)
            raise
        return code, tail.text()

    def _feed(self, process: subprocess.Popen[bytes], given: bytes) -> None:
        """Write to stdin in a thread, so that the time to wait covers it; a program need not read all of it."""
        stdin = process.stdin
        assert stdin is not None

        def write() -> None:
            with suppress(BrokenPipeError, ValueError):
                stdin.write(given)
            with suppress(BrokenPipeError):
                stdin.close()

        if len(given) <= 4096:  # fits into every pipe
            write()
        else:
            threading.Thread(target=write, name="sluicegate-stdin", daemon=True).start()


class _Tail:
    """Passes stderr through, and keeps its end."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._pass_on, name="sluicegate-stderr", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the end of what was written, on one line."""
        self._thread.join(1)  # a program that it started may keep stderr open
        return " ".join(self._kept.decode(errors="replace").split())[-400:]

    def _pass_on(self) -> None:
        while part := self._stream.read1(65536):  # type: ignore[attr-defined]  # a buffered reader
            self._kept = (self._kept + part)[-_TAIL_BYTES:]
            with suppress(OSError, ValueError):
                sys.stderr.buffer.write(part)
                sys.stderr.buffer.flush()
        self._stream.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(_KILL_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"ended by signal {-code}"
