"""Faults at chosen points of a task: they are pickled with the handler, and the product has no code for them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from sluicegate import Message
from sluicegate.spark import DrainContext
from tests.spark.faults.blocking import until_released

Process = Callable[[list[Message], DrainContext], None]

# Executors cannot import the tests, so this module is pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class InjectedError(Exception):
    """What a fault raises; it comes from no handler."""


@dataclass(frozen=True)
class Fault:
    """Happens once, in the first worker that gets there: right before or right after a call to Redis.

    Attributes:
        when: `before` the call is sent, or `after` its reply has come.
        script: which call, such as `claim`.
        number: the how manieth of this script in its worker, from 1.
        action: `kill` the worker, `raise` in it, or let it `block` until a file `go on` lies beside the marker.
        marker: a path; the file appears there when the fault happens, with the worker's process id.
    """

    when: str
    script: str
    number: int
    action: str
    marker: str

    def install(self) -> None:
        """Watch the calls of this process, from now on counted anew; a worker that lives on is watched once."""
        from sluicegate.gateway import RedisGateway

        execute, send = (getattr(method, "plain", method) for method in (RedisGateway.execute, RedisGateway.send))
        seen = 0

        def meets() -> bool:
            """Count a call that is about to be sent."""
            nonlocal seen
            seen += 1
            if seen == self.number and self.when == "before":
                self._happen()
            return seen == self.number

        def watched_execute(gateway: Any, call: Any, **options: Any) -> Any:
            if call.script.verb != self.script:
                return execute(gateway, call, **options)
            met = meets()
            reply = execute(gateway, call, **options)
            if met and self.when == "after":
                self._happen()
            return reply

        def watched_send(gateway: Any, call: Any, **options: Any) -> Any:
            """Return a `send` that reads the reply when the next call has been sent."""
            if call.script.verb != self.script or not gateway._reached:  # then it is executed instead
                return send(gateway, call, **options)
            met = meets()
            receive = send(gateway, call, **options)

            def watched_receive() -> Any:
                reply = receive()
                if met and self.when == "after":
                    self._happen()
                return reply

            return watched_receive

        watched_execute.plain = execute  # type: ignore[attr-defined]
        watched_send.plain = send  # type: ignore[attr-defined]
        RedisGateway.execute = watched_execute  # type: ignore[method-assign]
        RedisGateway.send = watched_send  # type: ignore[method-assign]

    def _happen(self) -> None:
        try:
            with Path(self.marker).open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:  # in another worker, at the same moment
            return
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.action == "block":
            until_released(Path(self.marker))
            return
        raise InjectedError(f"{self.when} {self.script} {self.number}")


class Faulty:
    """A handler that brings a fault along: it is in place as soon as the handler has arrived in its worker."""

    def __init__(self, process: Process, fault: Fault) -> None:
        self.process = process
        self.fault = fault

    def __call__(self, batch: list[Message], ctx: DrainContext) -> None:
        self.process(batch, ctx)

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.fault.install()
