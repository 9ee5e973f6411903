# Made from src/sluicegate/asyncio/worker/worker.py by `make format`; edit there.
"""A worker: handlers by message type over anything that messages are claimed from."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tenacity import wait_exponential, wait_random

from sluicegate import checks
from sluicegate.core.keys import consumer_name
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.handling.middleware import Middleware
from sluicegate.handling.report import WorkerReport
from sluicegate.handling.retry import Retry
from sluicegate.handling.routes import Handler, Routes, check_retry
from sluicegate.handling.run import Run
from sluicegate.handling.verdicts import OnUnhandled, Policy
from sluicegate.lease import Lease
from sluicegate.options import OPTIONS, RetryBackoff
from sluicegate.runtime import AWAITS, current_owner, pause
from sluicegate.session import branch_session, release_all
from sluicegate.worker.slot_work import SlotWork
from sluicegate.worker.slots import Background, Slots

if TYPE_CHECKING:
    from sluicegate.consumer import QueueConsumer

__all__ = ["Worker"]

F = TypeVar("F", bound=Handler)
_MAX_CONCURRENCY = 10_000
_WAIT_SECONDS = 30.0  # of one claim; a stop ends it early
_POLL_SECONDS = 0.1  # between looks at whether the queue is stopping
_STOP_POLL_SECONDS = 0.01
_RESTART_BACKOFF: RetryBackoff = wait_exponential(multiplier=0.5, max=30) + wait_random(0, 0.5)
_log = logging.getLogger("sluicegate")


class Worker:
    """Claims messages, calls the handler of each message's type, and settles the message by how that ended.

    The type is the header `type`, else the field `type` or `event_type` of a JSON object. A handler that returns is an
    ack. One that raises, or returns False, is a failure: the message is delivered again after a backoff, until its last
    attempt buries it. A message that no handler takes follows `on_unhandled`, and is an event; it is never acked
    silently.

    Every message has a lease of its own with a heartbeat, and is claimed only when a handler is free for it. So a slow
    handler delays no other message, and a crash delivers again only what was being handled.

    Args:
        queue: anything that messages are claimed from: a queue, a group of a stream, or a queue of jobs. It stays the
            caller's to close. Its `interrupt` stops the worker, and its `on_event` gets the worker's events.
        concurrency: handlers that run at the same time.
        retry: what happens to messages whose handlers fail, for handlers without a `Retry` of their own. None: what the
            queue's `on_error`, `retry_backoff` and `max_delivery_count` say.
        on_unhandled: what happens to a message that no handler takes: it is buried with the reason `unhandled_type`,
            acked, or delivered again after a backoff.
        middleware: hooks around every handler, in the order in which their `before` runs.
        name: shown as the consumer of what it holds; default: host, process and a random part.
        lease_seconds: the life of each lease without a heartbeat; default: the queue's `visibility_timeout_seconds`.
        stop_timeout_seconds: how long handlers may take once the worker is stopping. After that their messages are
            released, and the handlers are cancelled.
        restart_backoff: how long the worker waits before it claims again after Redis stayed away for a whole retry
            budget; one of tenacity's wait strategies. None: exponential from 0.5 s to 30 s with jitter.

    Raises:
        ConfigurationError: an argument that cannot work, or a queue that delivers at most once.
    """

    def __init__(
        self,
        queue: QueueConsumer,
        *,
        concurrency: int = 1,
        retry: Retry | None = None,
        on_unhandled: OnUnhandled = "bury",
        middleware: Iterable[Middleware] = (),
        name: str | None = None,
        lease_seconds: float | None = None,
        stop_timeout_seconds: float = 30.0,
        restart_backoff: RetryBackoff | None = None,
    ) -> None:
        _check_queue(queue)
        checks.count("concurrency", concurrency, _MAX_CONCURRENCY)
        checks.one_of("on_unhandled", on_unhandled, ("bury", "ack", "retry"))
        checks.not_negative("stop_timeout_seconds", stop_timeout_seconds)
        if lease_seconds is not None:
            checks.positive("lease_seconds", lease_seconds)
        OPTIONS["retry_backoff"].check("restart_backoff", restart_backoff)
        config = queue.session.config
        check_retry(retry, config)
        self._queue = queue
        self._concurrency = concurrency
        self._policy = Policy(retry, on_unhandled)
        self._routes = Routes(config, awaits=AWAITS)
        self._middleware: list[Middleware] = []
        self._name = name if name is not None else _default_name()
        self._consumer = consumer_name(self._name)
        self._lease_seconds = lease_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._restart_backoff = restart_backoff or _RESTART_BACKOFF
        self._run_now: Run[Lease] | None = None
        self._slots: Slots | None = None
        self._pid = os.getpid()
        self._failure: BaseException | None = None
        for each in middleware:
            self.use(each)

    # ------------------------------------------------------------------ handlers

    def handler(
        self, message_type: str, *, model: type[Any] | None = None, retry: Retry | None = None
    ) -> Callable[[F], F]:
        """Register the decorated function as the handler of one type; see `register`."""
        if not isinstance(message_type, str):
            raise OptionTypeError('write @worker.handler("order_created"): the decorator takes the type')

        def decorate(function: F) -> F:
            self.register(message_type, function, model=model, retry=retry)
            return function

        return decorate

    def register(
        self, message_type: str, handler: Handler, *, model: type[Any] | None = None, retry: Retry | None = None
    ) -> None:
        """Register the handler of one type.

        It gets the payload in the form that the annotation of its first parameter names: `bytes`, `str`, `Message`,
        `dict`, a `pydantic.BaseModel` or a `msgspec.Struct`; without one, whatever the JSON holds. If it takes a second
        argument, or one named `delivery`, `ctx` or `context`, that is the `Delivery`.

        Args:
            message_type: the type.
            handler: the function; in an asyncio worker it may be async, and a plain one runs in a thread.
            model: instead of the annotation, the model that the payload must fit. One that does not is buried with the
                reason `invalid_payload` and the path.
            retry: what happens to messages on which it fails; None for the worker's.

        Raises:
            ConfigurationError: the type has a handler already, or an argument cannot work.
        """
        self._routes.add(message_type, handler, model, retry)

    def set_default_handler(
        self, handler: Handler, *, model: type[Any] | None = None, retry: Retry | None = None
    ) -> None:
        """Register the handler of all messages that no other handler takes, with or without a type; see `register`."""
        self._routes.add_default(handler, model, retry)

    def use(self, middleware: Middleware) -> None:
        """Add hooks around every handler, inside of those that were added before.

        Raises:
            ConfigurationError: it is no `Middleware`, or has an async hook, which a worker of threads cannot await.
        """
        if not isinstance(middleware, Middleware):
            raise OptionTypeError(f"middleware must be a Middleware, not a {type(middleware).__name__}")
        if not AWAITS:
            for hook in (middleware.before, middleware.after, middleware.on_error):
                if checks.is_async(hook):
                    raise OptionTypeError(
                        f"{type(middleware).__name__}.{hook.__name__} is async, and a worker of threads awaits "
                        "nothing; write a plain method, or use sluicegate.asyncio.worker.Worker"
                    )
        self._middleware.append(middleware)

    # ------------------------------------------------------------------ run

    @property
    def name(self) -> str:
        """Return the worker's name, which its leases show as their consumer."""
        return self._name

    @property
    def concurrency(self) -> int:
        """Return how many handlers run at the same time; it can be set between two runs."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, number: int) -> None:
        checks.count("concurrency", number, _MAX_CONCURRENCY)
        if self._current() is not None:
            raise ConfigurationError(f"worker {self._name!r} runs with concurrency={self._concurrency}; stop it first")
        self._concurrency = number

    @property
    def is_running(self) -> bool:
        """Return whether the worker runs, in this process."""
        return self._current() is not None

    @property
    def silent_seconds(self) -> float | None:
        """Return how long ago the worker's loop last ran, which it does ten times per second; None if it does not run.

        A handler that blocks the event loop makes this grow, and so does a process that gets no processor time.
        """
        run = self._current()
        return None if run is None else run.silent_seconds()

    def run(self) -> WorkerReport:
        """Handle messages until `stop` is called, the queue is closed or interrupted, or an error ends it.

        While Redis is away the worker waits and tries again. Other errors of the server, such as refused permissions,
        are raised once the handlers have ended.

        Returns:
            What this run did.

        Raises:
            ConfigurationError: the worker runs already, or has no handler.
        """
        return self._in_foreground(self._begin(wait_seconds=_WAIT_SECONDS))

    def run_once(self, limit: int | None = None, *, wait_seconds: float = 0) -> WorkerReport:
        """Handle the messages that can be claimed now, and return once they are settled.

        Args:
            limit: the most messages; default: one per concurrent handler.
            wait_seconds: how long to wait for a message when none can be claimed.

        Returns:
            What this run did; its `claimed` is 0 when there was nothing to do.
        """
        limit = self._concurrency if limit is None else limit
        checks.count("limit", limit)
        checks.not_negative("wait_seconds", wait_seconds)
        return self._in_foreground(self._begin(limit, wait_seconds=wait_seconds))

    def start(self, background: bool = False) -> None:
        """Run the worker.

        Args:
            background: return at once, and run in a task of its own until `stop`.

        Raises:
            ConfigurationError: the worker runs already, or has no handler.
        """
        if not background:
            self.run()
            return
        run = self._begin(wait_seconds=_WAIT_SECONDS)
        run.owner = 0
        try:
            Background(partial(self._in_background, run), self._name).start()
        except BaseException:
            self._finish(run)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Claim no more, let the handlers end, and wait for that.

        The messages of handlers that do not end in time are released, mostly uncounted, for other consumers.
        A handler, or the thread or task that runs the worker, only asks for the end and does not wait for itself.

        Args:
            timeout: how long handlers may take from now on; default: `stop_timeout_seconds`.

        Returns:
            Whether the worker has ended, with every handler in time.

        Raises:
            Exception: the error that ended a run in the background, once.
        """
        seconds = self._stop_timeout_seconds if timeout is None else timeout
        checks.not_negative("timeout", seconds)
        run, slots = self._current(), self._slots
        if run is not None:
            run.stop(seconds)
            if run.owner == current_owner() or (slots is not None and slots.runs_caller()):
                return False
            while not run.has_ended:
                pause(_STOP_POLL_SECONDS, lambda: False)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return run is None or run.is_clean

    def __enter__(self) -> Self:
        self.start(background=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Exception as failure:
            if error is None:
                raise
            _log.warning("worker %r had ended with %s before its block did", self._name, type(failure).__name__)

    # ------------------------------------------------------------------ one run

    def _current(self) -> Run[Lease] | None:
        """Return the run under way; a forked child has none, because threads and tasks stay with the parent."""
        if self._pid != os.getpid():
            self._pid, self._run_now, self._slots = os.getpid(), None, None
        return self._run_now

    def _begin(self, limit: int | None = None, *, wait_seconds: float) -> Run[Lease]:
        if self._current() is not None:
            raise ConfigurationError(f"worker {self._name!r} runs already; stop it first, or make another one")
        if not self._routes:
            raise ConfigurationError(
                f'worker {self._name!r} has no handler; register one, such as @worker.handler("order_created")'
            )
        run: Run[Lease] = Run(
            current_owner(),
            self._queue.session.activity.stopping,
            self._stop_timeout_seconds,
            limit,
            wait_seconds=wait_seconds,
        )
        self._run_now = run
        return run

    def _finish(self, run: Run[Lease]) -> None:
        run.has_ended = True
        if self._run_now is run:
            self._run_now = self._slots = None

    def _in_foreground(self, run: Run[Lease]) -> WorkerReport:
        try:
            return self._complete(run)
        finally:
            self._finish(run)

    def _in_background(self, run: Run[Lease]) -> None:
        try:
            self._complete(run)
        except BaseException as error:
            if not isinstance(error, (Exception, KeyboardInterrupt, SystemExit)):
                raise
            _log.error("worker %r ended with %s; stop() raises it", self._name, type(error).__name__)
            self._failure = error
        finally:  # only now, so that whoever sees the end sees the error, too
            self._finish(run)

    def _complete(self, run: Run[Lease]) -> WorkerReport:
        """Run the slots to their end; handlers that do not end in time are given up."""
        queue = self._own_queue(run)
        work = SlotWork(
            run,
            queue,
            self._routes,
            self._policy,
            self._middleware,
            self._name,
            self._lease_seconds,
            self._restart_backoff,
        )
        slots = Slots(run.most_at_once(self._concurrency), self._name, work, run.fail)
        self._slots = slots
        try:
            slots.start()
            while not slots.wait(_POLL_SECONDS) and not run.stopping():
                run.beat()
            run.stop()
            while (left := run.left_seconds()) > 0 and not slots.wait(min(left, _POLL_SECONDS)):
                run.beat()
        except BaseException:  # an interruption: whatever still runs is given up at once
            run.stop(0)
            self._give_up(run, slots, queue)
            raise
        if not slots.wait(0):
            self._give_up(run, slots, queue)
        if run.error is not None:
            raise run.error
        return run.report

    def _own_queue(self, run: Run[Lease]) -> QueueConsumer:
        """Return the queue as this run uses it: its claims end with the run, and show the worker's name."""
        queue = copy(self._queue)
        queue.session = branch_session(self._queue.session, run.stopping, self._consumer)
        return queue

    def _give_up(self, run: Run[Lease], slots: Slots, queue: QueueConsumer) -> None:
        slots.cut()
        leases = run.give_up()
        if leases:
            _log.warning("worker %r releases %d messages whose handlers did not end", self._name, len(leases))
            release_all(queue.session, leases)


def _check_queue(queue: object) -> None:
    """Refuse what no worker of this flavour can work with.

    Raises:
        OptionTypeError: nothing that messages are claimed from, or one of the other flavour.
        ConfigurationError: a queue that delivers at most once.
    """
    claim = getattr(queue, "claim", None)
    session = getattr(queue, "session", None)
    if claim is None or session is None:
        raise OptionTypeError(
            f"queue must be a queue, a group of a stream or a queue of jobs, not a {type(queue).__name__}"
        )
    if checks.is_async(claim) is not AWAITS:
        raise OptionTypeError(
            f"a worker of {'asyncio' if AWAITS else 'threads'} needs a queue of its own flavour; take both from "
            "sluicegate, or both from sluicegate.asyncio"
        )
    if session.config.at_most_once:
        raise ConfigurationError(
            f"queue {session.keys.name!r} delivers at most once (visibility_timeout_seconds=None): its messages are "
            "acked before a handler starts, so a worker could retry and bury none; make the queue object with a "
            "visibility timeout"
        )


def _default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
