"""How a prepared call reaches Redis: scripts by hash, retries within a budget, errors in our words."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any, TypeVar

import redis
import tenacity
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.retry import Retry

from sluicegate import faults
from sluicegate.connection import Address, describe_client, refuse_unfit_client
from sluicegate.core.call import Call, Operation, Wait
from sluicegate.errors import ConfigurationError, RetryBudgetExhaustedError

__all__ = ["RedisGateway", "elapsed_clock"]

T = TypeVar("T")
_log = logging.getLogger("sluicegate")
_RAW: dict[str, Any] = {NEVER_DECODE: True}
# Before redis-py 5.3 a pool wants to be told the command; later ones warn when they are.
_COMMAND_NAME = signature(redis.ConnectionPool.get_connection).parameters["command_name"]
_CONNECTION_FOR = ("EVALSHA",) if _COMMAND_NAME.default is Parameter.empty else ()


def elapsed_clock() -> float:
    """Seconds by a clock that counts suspension where the system has one."""
    return time.clock_gettime(_CLOCK)


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RedisGateway:
    """Executes prepared calls over one `redis.Redis`.

    A gateway that has never reached its server fails at once, within the client's connect timeout; one that has
    rides out an outage for
    up to `retry_budget_seconds`. Every call may be repeated without a second effect, so retries below ours
    (redis-py's own) are harmless too.

    Args:
        redis_client: a connected or unconnected client; the gateway does not close it.
        url: where to connect instead; see `Address.parse`. The client is made at the first call.
        retry_budget_seconds: how long a call is retried, attempts included, by a monotonic clock. 0 disables.
        retry_initial_delay_seconds: first pause between attempts; pauses double, with jitter.
        retry_max_delay_seconds: longest pause.

    Raises:
        ConfigurationError: a client that cannot serve, or a retry parameter that makes no sense.
    """

    def __init__(
        self,
        *,
        redis_client: redis.Redis | None = None,
        url: str | None = None,
        retry_budget_seconds: float = 120,
        retry_initial_delay_seconds: float = 0.01,
        retry_max_delay_seconds: float = 5.0,
    ) -> None:
        if (redis_client is None) == (url is None):
            raise ConfigurationError("give exactly one of redis_client and url")
        for name, value in (
            ("retry_budget_seconds", retry_budget_seconds),
            ("retry_initial_delay_seconds", retry_initial_delay_seconds),
            ("retry_max_delay_seconds", retry_max_delay_seconds),
        ):
            if not value >= 0:
                raise ConfigurationError(f"{name} must be 0 or more, not {value!r}")
        if redis_client is not None:
            refuse_unfit_client(redis_client)
        self.address = Address.parse(url) if url is not None else None
        self.retry_budget_seconds = retry_budget_seconds
        self._client = redis_client
        self._waiting: redis.Redis | None = None
        self._lock = threading.Lock()
        self._reached = False
        self._pause = tenacity.wait_random_exponential(
            multiplier=retry_initial_delay_seconds, max=retry_max_delay_seconds
        )

    @property
    def client(self) -> redis.Redis:
        """The client, made on first use."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    assert self.address is not None
                    self._client = self.address.client()
        return self._client

    @property
    def server(self) -> str:
        """Where this gateway connects to, in words."""
        return self.address.server if self.address else describe_client(self.client)

    @property
    def decodes_responses(self) -> bool:
        """Whether the client was made with `decode_responses=True`, so that its user expects str."""
        return bool(self.client.connection_pool.connection_kwargs.get("decode_responses", False))

    def run(self, operation: Operation[T], *, retry: bool = True) -> T:
        """Drive an operation to its result; its calls are retried unless told otherwise."""
        try:
            step = next(operation)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return self._drive(operation, partial(self._answer, step, retry), retry)

    def start(self, operation: Operation[T]) -> Callable[[], T]:
        """Send the first call of an operation without waiting for its answer, so that the caller can prepare what comes
        next meanwhile.

        Returns:
            What waits for the answer and drives the operation to its result, as `run` does; it must be called.
        """
        call = next(operation)
        assert isinstance(call, Call)
        receive = self._send(call)
        return lambda: self._drive(operation, receive, retry=True)

    def _drive(self, operation: Operation[T], answer: Callable[[], Any], retry: bool) -> T:
        try:
            while True:
                try:
                    reply = answer()
                except Exception as error:  # noqa: BLE001  (the operation decides what it means)
                    step = operation.throw(error)
                else:
                    step = operation.send(reply)
                answer = partial(self._answer, step, retry)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _answer(self, step: Call[Any] | Wait, retry: bool) -> Any:
        return self.wait(step) if isinstance(step, Wait) else self.execute(step, retry=retry)

    def _send(self, call: Call[T]) -> Callable[[], T]:
        """Send a call; what is returned waits for its reply. Whatever goes wrong in between, `execute` repeats it."""
        start, pool = elapsed_clock(), self.client.connection_pool

        def again() -> T:
            return self.execute(call.later(elapsed_clock() - start))

        if not self._reached:
            return again
        connection: Any = None

        def receive() -> T:
            try:
                reply = connection.read_response(disable_decoding=True)
            except redis_errors.RedisError as error:
                if not isinstance(error, redis_errors.ResponseError):
                    connection.disconnect()
                return again()
            except BaseException:
                connection.disconnect()  # its reply is still to come
                raise
            finally:
                pool.release(connection)
            return call.decode(reply)

        try:
            connection = pool.get_connection(*_CONNECTION_FOR)
            connection.send_command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
        except BaseException as error:
            if connection is not None:
                connection.disconnect()
                pool.release(connection)
            if not isinstance(error, redis_errors.RedisError):
                raise
            return again
        return receive

    def execute(self, call: Call[T], *, retry: bool = True) -> T:
        """Execute one call, with retries unless told otherwise.

        Raises:
            RedisUnavailableError: the server was never reached.
            RetryBudgetExhaustedError: it was, and stayed away for the whole budget.
            RedisMemoryError, WrongKeyTypeError: Redis refused the call; nothing was changed.
            RedisAccessError: Redis refused the credentials or the user's rights.
        """
        start = elapsed_clock()
        try:
            if retry:
                for attempt in self._attempts():
                    with attempt:
                        return self._once(call.later(elapsed_clock() - start))
            return self._once(call)
        except tenacity.RetryError:
            raise AssertionError("unreachable: attempts re-raise") from None
        except Exception as error:
            if faults.is_transient(error):
                raise self._unreachable(error) from error
            if denied := faults.access_refused(self.server, error):
                raise denied from error
            if isinstance(error, redis_errors.ResponseError) and (refused := self._refused(call, error)):
                raise refused from error
            raise

    def wait(self, wait: Wait) -> bool:
        """Sleep until the bell rings, on a connection of its own; a lost connection ends the sleep early."""
        try:
            return self._waiter().execute_command("BLPOP", wait.bell, wait.seconds, **_RAW) is not None
        except Exception as error:
            if not faults.is_transient(error):
                raise
            _log.warning("waiting on %s ended early: %s", self.server, type(error).__name__)
            time.sleep(min(0.2, wait.seconds))
            return False

    def close(self) -> None:
        """Close the connections that this gateway made; a client given by the user stays open."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.connection_pool.disconnect()
                self._waiting = None
            if self.address is not None and self._client is not None:
                self._client.connection_pool.disconnect()
                self._client = None

    def _once(self, call: Call[T]) -> T:
        client, script = self.client, call.script
        if not self._reached:
            self._meet(client)
        try:
            reply = client.execute_command("EVALSHA", script.sha, len(call.keys), *call.keys, *call.args, **_RAW)
        except redis_errors.NoScriptError:
            reply = client.execute_command("EVAL", script.text, len(call.keys), *call.keys, *call.args, **_RAW)
        return call.decode(reply)

    def _meet(self, client: redis.Redis) -> None:
        """First contact: until it succeeds nothing was sent that could have taken effect."""
        try:
            client.execute_command("PING", **_RAW)
        except redis_errors.NoPermissionError:
            _log.debug("the user of %s may not PING; it was reached all the same", self.server)
        self._reached = True

    def _attempts(self) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: self._reached and faults.is_transient(error)),
            wait=self._pause,
            stop=tenacity.stop_after_delay(self.retry_budget_seconds),
            before_sleep=self._note_retry,
            reraise=True,
        )

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("Redis at %s: %s, attempt %d", self.server, type(error).__name__, state.attempt_number)

    def _unreachable(self, error: Exception) -> Exception:
        away = faults.unavailable(self.server, error)
        if not self._reached:
            return away
        return RetryBudgetExhaustedError(f"{away} (retried for {self.retry_budget_seconds:g} s)")

    def _refused(self, call: Call[Any], error: redis_errors.ResponseError) -> Exception | None:
        named = faults.refusal(call, error)
        if named is not None or "WRONGTYPE" not in str(error):
            return named
        for position, key in enumerate(call.keys):
            role, expected = faults.expected_type(call, position)
            found = self.client.execute_command("TYPE", key, **_RAW).decode()
            if found not in ("none", expected):
                return faults.wrong_type(key, role, found)
        return None

    def _waiter(self) -> redis.Redis:
        """A client like ours for blocking calls: longer socket timeout, no retries of redis-py's own."""
        with self._lock:
            if self._waiting is None:
                pool = self.client.connection_pool
                options = dict(pool.connection_kwargs, socket_timeout=20.0, retry=Retry(NoBackoff(), 0))
                if hasattr(pool, "service_name"):
                    fresh = type(pool)(pool.service_name, pool.sentinel_manager, **options)  # type: ignore[attr-defined]
                else:
                    fresh = redis.ConnectionPool(connection_class=pool.connection_class, **options)
                self._waiting = redis.Redis(connection_pool=fresh)
            return self._waiting
