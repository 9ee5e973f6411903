"""Loads a worker by the name of its module, and runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluicegate.errors import ConfigurationError

if TYPE_CHECKING:
    from types import FrameType

    from sluicegate.asyncio.worker import Worker as AsyncWorker
    from sluicegate.cli.places import Target
    from sluicegate.handling.report import WorkerReport
    from sluicegate.worker import Worker

    AnyWorker = Worker | AsyncWorker

__all__ = ["Settings", "load", "run"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_USUAL_NAMES = ("worker", "app", "make_worker")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says about a worker.

    Attributes:
        target: what it consumes from; None where its module says so.
        concurrency: handlers that run at the same time; None for the worker's own number.
        stop_timeout_seconds: how long handlers may take once it is stopping; None for the worker's own.
    """

    target: Target | None = None
    concurrency: int | None = None
    stop_timeout_seconds: float | None = None


def load(name: str) -> Any:
    """Return what `module:attribute` names; modules of the working folder are found, too.

    Raises:
        ConfigurationError: there is no such module or attribute, or the module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise ConfigurationError(f"{name!r} names no module; write module:worker")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"there is no module {module_name!r} here or in this Python") from None
        raise ConfigurationError(f"module {module_name!r} needs {error.name!r}, which is not installed") from error
    except Exception as error:
        raise ConfigurationError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not attribute:
        found = [usual for usual in _USUAL_NAMES if hasattr(module, usual)]
        if not found:
            raise ConfigurationError(
                f"module {module_name!r} has none of {', '.join(_USUAL_NAMES)}; write {module_name}:name"
            )
        attribute = found[0]
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise ConfigurationError(f"module {module_name!r} has no {attribute!r}") from None
    return value


def run(app: Any, settings: Settings, started: Callable[[AnyWorker], object]) -> WorkerReport:
    """Run a worker until the first SIGTERM or SIGINT, which lets its handlers end; a second one ends them.

    Args:
        app: a worker, or a function that makes one. The function gets what it takes of `queue` (what the command line
            names) and `concurrency`; an async one makes an asyncio worker.
        settings: of the command line.
        started: called with the worker before it runs.

    Raises:
        ConfigurationError: it is neither, or does not fit the settings.
    """
    if _is_worker(app):
        if settings.target is not None:
            raise ConfigurationError(
                "the worker has its queue; leave PLACE out, or name a function that takes queue= and returns a worker"
            )
        return _run(_adjusted(app, settings), settings, started)
    if not callable(app):
        raise ConfigurationError(f"a {type(app).__name__} is neither a Worker nor a function that makes one")
    if inspect.iscoroutinefunction(app):
        return asyncio.run(_made_in_loop(app, settings, started))
    arguments = _arguments(app, settings, asynchronous=False)
    with closing(arguments["queue"]) if "queue" in arguments else nullcontext():
        made = app(**arguments)
        if not _is_worker(made):
            raise ConfigurationError(f"the function returned a {type(made).__name__}, and no Worker")
        return _run(_adjusted(made, settings), settings, started)


def _run(worker: AnyWorker, settings: Settings, started: Callable[[AnyWorker], object]) -> WorkerReport:
    started(worker)
    if inspect.iscoroutinefunction(worker.run):
        return asyncio.run(_run_async(worker, settings.stop_timeout_seconds))
    of_threads: Any = worker
    with _stopped_by_signals(lambda: of_threads.stop(settings.stop_timeout_seconds)):
        report: WorkerReport = of_threads.run()
        return report


async def _made_in_loop(
    make: Callable[..., Any], settings: Settings, started: Callable[[AnyWorker], object]
) -> WorkerReport:
    arguments = _arguments(make, settings, asynchronous=True)
    async with aclosing(arguments["queue"]) if "queue" in arguments else nullcontext():
        made = await make(**arguments)
        if not (_is_worker(made) and inspect.iscoroutinefunction(made.run)):
            raise ConfigurationError(
                f"the async function returned a {type(made).__name__}, and no sluicegate.asyncio.worker.Worker"
            )
        started(_adjusted(made, settings))
        return await _run_async(made, settings.stop_timeout_seconds)


async def _run_async(worker: Any, timeout: float | None) -> WorkerReport:
    """Run a worker of asyncio; the first signal stops it, a second one cancels it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    stops: list[asyncio.Task[Any]] = []

    def stop() -> None:
        if stops and task is not None:
            task.cancel()
        stops.append(loop.create_task(worker.stop(timeout)))

    owned = [number for number in _SIGNALS if _is_free(number)]
    for number in owned:
        loop.add_signal_handler(number, stop)
    try:
        report: WorkerReport = await worker.run()
        return report
    finally:
        for number in owned:
            loop.remove_signal_handler(number)


@contextmanager
def _stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Let the first signal stop the worker, and give the second one back its usual effect.

    The stop has a thread of its own, because a handler of a signal must not wait for locks of the code that it
    interrupts.
    """
    before: dict[signal.Signals, Any] = {}

    def give_back() -> None:
        for number, usual in before.items():
            signal.signal(number, usual)

    def handle(_number: int, _frame: FrameType | None) -> None:
        give_back()
        threading.Thread(target=stop, name="sluicegate-stop", daemon=True).start()

    for number in _SIGNALS:
        if _is_free(number):
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        give_back()


def _is_free(number: int) -> bool:
    """Return whether no code of the user handles a signal; a `GracefulInterruptHandler` stops the queue itself."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def _is_worker(value: object) -> bool:
    from sluicegate.asyncio.worker import Worker as AsyncWorker
    from sluicegate.worker import Worker

    return isinstance(value, (Worker, AsyncWorker))


def _adjusted(worker: AnyWorker, settings: Settings) -> AnyWorker:
    if settings.concurrency is not None:
        worker.concurrency = settings.concurrency
    return worker


def _arguments(make: Callable[..., Any], settings: Settings, *, asynchronous: bool) -> Mapping[str, Any]:
    """Return the arguments that a function takes."""
    parameters = inspect.signature(make).parameters
    required = [
        name
        for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    strange = [name for name in required if name not in ("queue", "concurrency")]
    if strange:
        raise ConfigurationError(
            f"the function needs {', '.join(strange)}; the command line passes queue and concurrency only"
        )
    given: dict[str, Any] = {}
    if settings.target is None and "queue" in required:
        raise ConfigurationError("the function needs a queue; name the place to consume from: module:function PLACE")
    if settings.target is not None:
        if "queue" not in parameters:
            raise ConfigurationError("the function takes no queue; leave PLACE out, or give it a parameter queue")
        given["queue"] = _open(settings.target, asynchronous=asynchronous)
    if "concurrency" in parameters and (settings.concurrency is not None or "concurrency" in required):
        given["concurrency"] = settings.concurrency or 1
    return given


def _open(target: Target, *, asynchronous: bool) -> Any:
    """Make what the worker consumes from; a worker outlives outages, so its calls are retried for long."""
    target.consumed()
    if not asynchronous:
        return target.consumer(gateway=target.cli.gateway(target.url, retry_budget_seconds=120.0))
    if target.kind == "jobs":
        from sluicegate.asyncio.jobs import RedisJobQueue

        return RedisJobQueue(target.place.name, url=target.redis_url, **target.configured())
    from sluicegate.asyncio import open_place

    return open_place(target.place, url=target.redis_url, **target.configured())
