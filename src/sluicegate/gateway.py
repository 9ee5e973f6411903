"""How a prepared call reaches Redis: scripts by hash, retries within a budget, errors in our words."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import redis
import tenacity
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from sluicegate._gateway_base import (
    ASKING,
    MAX_REDIRECTS,
    OPTIONS_ELSEWHERE,
    STOP_SLICE_SECONDS,
    TROUBLE,
    WAIT_MARGIN_SECONDS,
    Command,
    Course,
    GatewayBase,
    RetryNote,
    Stage,
    commands,
    derived_pool,
    elapsed_clock,
    heard,
    is_alone,
    is_passing,
    known_nodes,
    node_options,
    owner,
    reply_seconds,
    sentinels,
)
from sluicegate._redis import error_mapping
from sluicegate._redis.cluster_routes import Node
from sluicegate._redis.connection import Address, client_decodes, describe_client, refuse_unfit_client
from sluicegate._redis.size_limits import (
    ASK_LIMITS,
    is_cut_off,
    is_refused_size,
    largest_argument,
    limits_in,
    oversized,
    within_any_limit,
)
from sluicegate.connection_io import borrow, borrowed, exchange, give_back, read, refuses_announced, send
from sluicegate.core.call import Call, Wait
from sluicegate.signatures import explains_unknown_options

__all__ = ["Client", "Gateway", "RedisGateway"]

T = TypeVar("T")
Client = redis.Redis | redis.RedisCluster
Work = Callable[..., list[Any]]  # (pool, asking=…) -> raw replies; errors are among them
_log = logging.getLogger("sluicegate")
_NO_RETRY = Retry(NoBackoff(), 0)


class _Ended(Exception):
    """A wait is over although no reply came; its connection is of no further use."""


class Gateway(Protocol):
    """A way of reaching Redis. `RedisGateway` is ours; yours can be passed to a queue as `gateway=`.

    `sluicegate.testing.gateways.check_gateway` holds an implementation against this contract:

    - A call goes to the server that is the primary for `call.keys[0]`: EVALSHA with `call.script.sha`, all `call.keys`
      and `call.args`; when the server answers NOSCRIPT, EVAL with `call.script.text`. The reply is read raw, as bytes,
      and `call.decode` makes the result of it.
    - A command in `call.then` is sent right behind the script on the same connection, in the same write, at every
      attempt. The result is then a pair: the decoded reply, and the raw reply of `then`; an error that the server
      answered to `then` is the second half of that pair, not raised.
    - A call may be sent any number of times. Each attempt sends `call.later(seconds since the first)`; without that a
      publish repeated after its receipt has expired would be published twice.
    - Objects are shared by threads, and used after a fork.

    Attributes:
        retry_budget_seconds: how long a call may be retried; a queue keeps its receipts for longer.
    """

    retry_budget_seconds: float

    @property
    def server(self) -> str:
        """Where it connects to, in words for errors; never a password."""

    @property
    def decodes_responses(self) -> bool:
        """Whether handlers get str instead of bytes."""

    @property
    def address(self) -> Address | None:
        """Where it connects to as something that travels, None when it cannot travel."""

    def execute(self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None) -> T:
        """Execute one call.

        Args:
            call: what to send.
            retry: False: one attempt of a few seconds at most, on a connection that no retried call can hold up.
            on_retry: told before each pause between attempts.

        Raises:
            RedisUnavailableError: nobody answers there, or no connection came free for the whole budget; nothing was
                sent that could have taken effect.
            RedisRefusedError: the server answered for the whole budget that it does not do it now; nothing was changed.
            RetryBudgetExhaustedError: it was reached, and stayed away for the whole budget, or for the one attempt.
            RedisMemoryError, WrongKeyTypeError: Redis refused the call; nothing was changed.
            RedisAccessError: Redis refused the credentials or the user's rights.
            ConfigurationError: the server does not know the command in `then`; nothing was sent.
        """

    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until the bell rings, time is up or `stopped()` is true.

        A blocked connection is one that nothing else needs. The sleep ends within 0.2 s once `stopped()` is true, and
        nothing more is sent then. A lost connection may end it early, never at once: its caller looks again.

        Returns:
            Whether the bell rang.
        """

    def close(self) -> None:
        """Let go of connections that it made; they are made again when needed. Any number of times."""


class RedisGateway(GatewayBase):
    """Executes prepared calls over one `redis.Redis` or `redis.RedisCluster`.

    A gateway that was never answered fails at once, within the client's connect timeout, where nobody can be connected
    to: neither the server, nor any Sentinel, nor any node. Everything else that may pass it rides out for up to
    `retry_budget_seconds`, during which a Sentinel or a cluster may name another primary. It
    retries by itself, on plain connections: whatever the client would retry is not retried below it. Threads share no
    lock around I/O, and a forked child makes its own connections.

    Args:
        redis_client: a connected or unconnected client; the gateway does not close it.
        url: where to connect instead; see `Address.parse`. The client is made at the first call.
        retry_budget_seconds: how long a call is retried, attempts included, by a monotonic clock. 0 disables.
        retry_initial_delay_seconds: first pause between attempts; pauses double, with jitter.
        retry_max_delay_seconds: longest pause.

    Raises:
        ConfigurationError: a client that cannot serve, or a retry parameter that makes no sense.
    """

    @explains_unknown_options(OPTIONS_ELSEWHERE)
    def __init__(
        self,
        *,
        redis_client: Client | None = None,
        url: str | None = None,
        retry_budget_seconds: float = 120,
        retry_initial_delay_seconds: float = 0.01,
        retry_max_delay_seconds: float = 5.0,
    ) -> None:
        super().__init__(
            redis_client=redis_client,
            url=url,
            retry_budget_seconds=retry_budget_seconds,
            retry_initial_delay_seconds=retry_initial_delay_seconds,
            retry_max_delay_seconds=retry_max_delay_seconds,
        )
        if redis_client is not None:
            refuse_unfit_client(redis_client)
        self._client = redis_client
        self._pools: dict[object, Any] = {}
        self._lock = threading.RLock()  # for making the client, by whom a signal handler may interrupt
        _gateways.add(self)

    @property
    def client(self) -> Client:
        """The client, made on first use."""
        client = self._client
        if client is None:
            assert self.address is not None
            with self._lock:
                client = self._client = self._client or self.address.client()
        return client

    @property
    def server(self) -> str:
        """Where this gateway connects to, in words."""
        return self.address.server if self.address else describe_client(self._client)

    @property
    def decodes_responses(self) -> bool:
        """Whether the client was made with `decode_responses=True`, so that its user expects str."""
        return self.address.decode_responses if self.address else client_decodes(self._client)

    def execute(self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None) -> T:
        """Execute one call, with retries unless told otherwise; see `Gateway.execute`."""
        start, course = elapsed_clock(), Course(call.doubtful)
        try:
            try:
                return self._once(call, Stage.CALLS if retry else Stage.SINGLE)
            except Exception as error:
                if not (self._may_pass(course, error) and retry):
                    raise
                return self._again(call, course, start, error, on_retry)
        except Exception as error:
            explained = self._explained(call, course, error, retried=retry)
            if explained is None and error_mapping.is_wrong_type(error):
                explained = self._wrong_type(call)
            explained = explained or error_mapping.script_error(call, error)
            if explained is None:
                raise
            raise explained from error_mapping.presentable(error)

    def send(self, call: Call[T]) -> Callable[[], T]:
        """Send a call without waiting for its reply.

        Returns:
            What waits for the reply; it must be called. Whatever went wrong in between, `execute` repeats the call.
        """
        start = elapsed_clock()

        def again(*, doubtful: bool = False) -> T:
            return self.execute(replace(call.later(elapsed_clock() - start), doubtful=doubtful))

        if not self._reached or call.then:
            return again
        try:
            pool, _ = self._pool(Stage.CALLS, call.keys[0], None)
            if is_alone(pool):
                return again
            connection = borrow(pool)
        except TROUBLE:  # the repetition meets it again, and says what it is
            return again
        try:
            send(connection, connection.pack_commands(commands(call)))
        except BaseException as error:
            give_back(pool, connection, intact=False)
            if not isinstance(error, TROUBLE):
                raise
            return partial(again, doubtful=True)

        def receive() -> T:
            intact, lost = False, False
            try:
                reply = read(connection)
                intact = not error_mapping.ends_connection(reply)
            except TROUBLE as error:
                lost, reply = True, error
            finally:
                give_back(pool, connection, intact=intact)
            return again(doubtful=lost) if isinstance(reply, Exception) else call.decode(reply)

        return receive

    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until the bell rings, on a connection of its own; a lost connection ends the sleep early."""
        try:
            reply = self._routed(Stage.WAITING, wait.wakeup, partial(self._listen, wait, stopped))[0]
            if isinstance(reply, Exception):
                raise reply
            return reply is not None
        except _Ended:
            return False
        except Exception as error:  # noqa: BLE001  (most are passed on)
            if not error_mapping.is_transient(error):
                raise error_mapping.access_refused(self.server, error) or error from None
            _log.warning("waiting on %s ended early: %s", self.server, type(error).__name__)
            time.sleep(min(2 * STOP_SLICE_SECONDS, wait.seconds))
            return False

    def close(self) -> None:
        """Close the connections that this gateway made; a client given by the user stays open."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.disconnect()
        if self.address is not None:
            client, self._client = self._client, None
            if client is not None:
                for each in (client, *sentinels(client)):
                    each.close()

    # ------------------------------------------------------------------ one attempt

    def _again(
        self,
        call: Call[T],
        course: Course,
        start: float,
        first: Exception,
        on_retry: Callable[[RetryNote], Any] | None,
    ) -> T:
        """Go on after a first attempt that failed; an attempt that succeeds needs nothing of this."""
        failed, notes = [first], list[RetryNote]()

        def attempt() -> T:
            if failed:
                raise failed.pop()
            return self._once(call.later(elapsed_clock() - start), Stage.CALLS)

        retrying = tenacity.Retrying(
            sleep=partial(self._sleep, notes, on_retry), **self._policy(call, course, notes, start)
        )
        return retrying(attempt)

    def _once(self, call: Call[T], stage: str) -> T:
        def work(pool: Any, *, asking: bool) -> list[Any]:
            if not self._reached:
                self._meet(pool)
            if (name := self._needs_check(call)) is not None:
                self._learn(name, exchange(pool, [("COMMAND", "INFO", name)])[0])
            seconds = reply_seconds(call)
            try:
                replies = exchange(pool, commands(call), asking=asking, seconds=seconds)
                if isinstance(replies[0], redis_errors.NoScriptError):
                    replies = exchange(pool, commands(call, text=True), asking=asking, seconds=seconds)
            except TROUBLE as error:
                if is_cut_off(error):
                    self._refuse_oversized(call, pool)
                raise
            if is_refused_size(replies[0]):
                self._refuse_oversized(call, pool, said=True)
            return replies

        result: T = self._result(call, self._routed(stage, call.keys[0], work))
        return result

    def _refuse_oversized(self, call: Call[Any], pool: Any, *, said: bool = False) -> None:
        """After an attempt that failed: see whether the server does not accept an argument of the call.

        Args:
            call: that failed.
            pool: through which.
            said: whether the server said so.

        Raises:
            PayloadTooLargeError: it does not, and never will.
        """
        size = largest_argument(call)
        if within_any_limit(size):
            return
        limits: dict[str, int] = {}
        with suppress(*TROUBLE):  # away; the next attempt finds out
            limits = limits_in(exchange(pool, ASK_LIMITS))
            said = said or (not limits and refuses_announced(pool, size))
        if (refused := oversized(call, self.server, size, limits, said=said)) is not None:
            raise refused

    def _meet(self, pool: Any) -> None:
        """First contact: until it succeeds nothing was sent that could have taken effect."""
        self._met(exchange(pool, [("PING",)])[0])

    def _wrong_type(self, call: Call[Any]) -> Exception | None:
        for position, key in enumerate(call.keys):
            found = self._routed(Stage.CALLS, key, partial(exchange, sent=[("TYPE", key)]))
            if (named := error_mapping.mistyped(call, position, found[0])) is not None:
                return named
        return None

    def _listen(self, wait: Wait, stopped: Callable[[], bool] | None, pool: Any, *, asking: bool) -> list[Any]:
        """The reply to BLPOP, None when the sleep ended before it came."""
        with borrowed(pool) as connection:
            sent: list[Command] = [("BLPOP", wait.wakeup, wait.seconds)]
            send(connection, connection.pack_commands([*ASKING, *sent] if asking else sent))
            if asking:
                read(connection)
            end = elapsed_clock() + wait.seconds + WAIT_MARGIN_SECONDS
            pools = self._pools
            while (left := end - elapsed_clock()) > 0 and self._pools is pools and not (stopped and stopped()):
                try:
                    if connection.can_read(timeout=min(left, STOP_SLICE_SECONDS)):
                        return [heard(read(connection))]
                except Exception:  # a socket that another thread closes under it fails in many ways
                    if self._pools is pools:
                        raise
            raise _Ended

    def _sleep(self, notes: list[RetryNote], on_retry: Callable[[RetryNote], Any] | None, seconds: float) -> None:
        if on_retry is not None:
            on_retry(notes[-1])
        time.sleep(seconds)

    # ------------------------------------------------------------------ where

    def _routed(self, stage: str, key: bytes, work: Work) -> list[Any]:
        """Do a piece of work on the node that has a key, wherever a cluster says that it is; returns its replies."""
        place: Node | None = None
        asking = False
        replies: list[Any] = []
        for _ in range(MAX_REDIRECTS):
            pool, node = self._pool(stage, key, place)
            try:
                replies = work(pool, asking=asking)
            except Exception as error:
                if node is not None and error_mapping.is_transient(error):
                    self._routes.suspect(key_slot(key), node, known_nodes(self.client))
                raise
            redirect = error_mapping.redirection(replies[0])
            if redirect is None:
                if node is not None and is_passing(replies[0]):
                    self._routes.suspect(key_slot(key), node, known_nodes(self.client))
                break
            place, asking = self._redirected(redirect, node), redirect.asking
            if not asking:
                self._routes.learn(key_slot(key), place)
        return replies

    def _pool(self, stage: str, key: bytes, place: Node | None) -> tuple[Any, Node | None]:
        """The pool for a key, and in a cluster the node that it leads to."""
        client, pools = self.client, self._pools
        if not isinstance(client, redis.RedisCluster):
            if stage == Stage.CALLS:
                return client.connection_pool, None
            # Two threads may make a pool each, of which one stays: neither has connected yet.
            made = pools.get(stage) or pools.setdefault(stage, derived_pool(client.connection_pool, stage, _NO_RETRY))
            return made, None
        node = place or self._routes.get(key_slot(key)) or owner(client, key)
        made = pools.get((stage, node)) or pools.setdefault((stage, node), self._node_pool(client, stage, node))
        return made, node

    @staticmethod
    def _node_pool(client: redis.RedisCluster, stage: str, node: Node) -> Any:
        like = client.get_redis_connection(client.get_nodes()[0]).connection_pool
        options = node_options(like.connection_kwargs, stage, _NO_RETRY, node)
        return redis.ConnectionPool(connection_class=like.connection_class, **options)


_gateways: weakref.WeakSet[RedisGateway] = weakref.WeakSet()


def _renew_locks() -> None:
    """Threads that the child does not have may have held locks when it was forked."""
    for gateway in list(_gateways):
        gateway._lock = threading.RLock()
        for pool in (*gateway._pools.values(), getattr(gateway._client, "connection_pool", None)):
            for name in ("_lock", "_fork_lock"):  # redis-py takes the first to find out that this is a child
                if hasattr(pool, name):
                    setattr(pool, name, threading.RLock())


os.register_at_fork(after_in_child=_renew_locks)
