"""How a prepared call reaches Redis from asyncio; `sluicegate.gateway` is the other half."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import redis.asyncio
import tenacity
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

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
from sluicegate.asyncio.connection_io import borrow, borrowed, exchange, give_back, read, refuses_announced, send
from sluicegate.cancellation import CancellationGuard
from sluicegate.core.call import Call, Wait
from sluicegate.signatures import explains_unknown_options

__all__ = ["Client", "Gateway", "RedisGateway"]

T = TypeVar("T")
Client = redis.asyncio.Redis | redis.asyncio.RedisCluster
Work = Callable[..., Awaitable[list[Any]]]  # (pool, asking=…) -> raw replies; errors are among them
_log = logging.getLogger("sluicegate")
_NO_RETRY = Retry(NoBackoff(), 0)


class _Ended(Exception):
    """A wait is over although no reply came; its connection is of no further use."""


class Gateway(Protocol):
    """A way of reaching Redis; `sluicegate.gateway.Gateway` says what each member promises."""

    retry_budget_seconds: float

    @property
    def server(self) -> str:
        """Where it connects to, in words."""

    @property
    def decodes_responses(self) -> bool:
        """Whether handlers get str instead of bytes."""

    @property
    def address(self) -> Address | None:
        """Where it connects to as something that travels, None when it cannot travel."""

    async def execute(
        self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None
    ) -> T:
        """Execute one call; what `on_retry` returns is awaited when it is awaitable."""

    async def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until the bell rings, time is up or `stopped()` is true."""

    async def aclose(self) -> None:
        """Let go of connections that it made."""


class RedisGateway(GatewayBase):
    """Executes prepared calls over one `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`.

    What `sluicegate.gateway.RedisGateway` promises holds here too. A cancellation drops the connection on which a reply
    is still to come. One made from a URL serves any number of event loops, one after the other or at once.

    Args:
        redis_client: a client; the gateway does not close it.
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
            refuse_unfit_client(redis_client, asynchronous=True)
        self._given = redis_client
        # Sockets belong to the event loop, and so to the process, in which they were made.
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()

    @property
    def client(self) -> Client:
        """The client; one for a URL is made on first use in an event loop."""
        if self._given is not None:
            return self._given
        assert self.address is not None
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self.address.async_client()
        return self._made[loop]

    @property
    def server(self) -> str:
        """Where this gateway connects to, in words."""
        return self.address.server if self.address else describe_client(self._given)

    @property
    def decodes_responses(self) -> bool:
        """Whether the client was made with `decode_responses=True`, so that its user expects str."""
        return self.address.decode_responses if self.address else client_decodes(self._given)

    async def execute(
        self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None
    ) -> T:
        """Execute one call, with retries unless told otherwise; see `sluicegate.gateway.Gateway.execute`."""
        start, course = elapsed_clock(), Course(call.doubtful)
        try:
            try:
                return await self._once(call, Stage.CALLS if retry else Stage.SINGLE)
            except Exception as error:
                if not (self._may_pass(course, error) and retry):
                    raise
                return await self._again(call, course, start, error, on_retry)
        except Exception as error:
            explained = self._explained(call, course, error, retried=retry)
            if explained is None and error_mapping.is_wrong_type(error):
                explained = await self._wrong_type(call)
            explained = explained or error_mapping.script_error(call, error)
            if explained is None:
                raise
            raise explained from error_mapping.presentable(error)

    async def send(self, call: Call[T]) -> Callable[[], Awaitable[T]]:
        """Send a call without waiting for its reply.

        Returns:
            What waits for the reply; it must be awaited. Whatever went wrong in between, `execute` repeats the call.
        """
        start = elapsed_clock()

        async def again(*, doubtful: bool = False) -> T:
            return await self.execute(replace(call.later(elapsed_clock() - start), doubtful=doubtful))

        if not self._reached or call.then:
            return again
        try:
            pool, _ = await self._pool(Stage.CALLS, call.keys[0], None)
            if is_alone(pool):
                return again
            connection = await borrow(pool)
        except TROUBLE:  # the repetition meets it again, and says what it is
            return again
        try:
            await send(connection, connection.pack_commands(commands(call)))
        except BaseException as error:
            await give_back(pool, connection, intact=False)
            if not isinstance(error, TROUBLE):
                raise
            return partial(again, doubtful=True)

        async def receive() -> T:
            intact, lost = False, False
            try:
                reply = await read(connection)
                intact = not error_mapping.ends_connection(reply)
            except TROUBLE as error:
                lost, reply = True, error
            finally:
                await give_back(pool, connection, intact=intact)
            return await again(doubtful=lost) if isinstance(reply, Exception) else call.decode(reply)

        return receive

    async def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until the bell rings, on a connection of its own; a lost connection ends the sleep early."""
        try:
            reply = (await self._routed(Stage.WAITING, wait.wakeup, partial(self._listen, wait, stopped)))[0]
            if isinstance(reply, Exception):
                raise reply
            return reply is not None
        except _Ended:
            return False
        except Exception as error:  # noqa: BLE001  (most are passed on)
            if not error_mapping.is_transient(error):
                raise error_mapping.access_refused(self.server, error) or error from None
            _log.warning("waiting on %s ended early: %s", self.server, type(error).__name__)
            await asyncio.sleep(min(2 * STOP_SLICE_SECONDS, wait.seconds))
            return False

    async def aclose(self) -> None:
        """Close the connections that this gateway made in this event loop; a client given by the user stays open."""
        loop = asyncio.get_running_loop()
        pools = self._pools.get(loop, {})
        for place, pool in list(pools.items()):  # each forgotten once it is closed: a close may be cancelled
            await pool.disconnect()
            pools.pop(place, None)
        client = self._made.get(loop)
        if client is not None:
            for each in (client, *sentinels(client)):
                await (each.aclose() if hasattr(each, "aclose") else each.close())
            self._made.pop(loop, None)

    # ------------------------------------------------------------------ one attempt

    async def _again(
        self,
        call: Call[T],
        course: Course,
        start: float,
        first: Exception,
        on_retry: Callable[[RetryNote], Any] | None,
    ) -> T:
        """Go on after a first attempt that failed; an attempt that succeeds needs nothing of this."""
        failed, notes = [first], list[RetryNote]()

        async def attempt() -> T:
            if failed:
                raise failed.pop()
            return await self._once(call.later(elapsed_clock() - start), Stage.CALLS)

        retrying = tenacity.AsyncRetrying(
            sleep=partial(self._sleep, notes, on_retry), **self._policy(call, course, notes, start)
        )
        return await retrying(attempt)

    async def _once(self, call: Call[T], stage: str) -> T:
        async def work(pool: Any, *, asking: bool) -> list[Any]:
            if not self._reached:
                await self._meet(pool)
            if (name := self._needs_check(call)) is not None:
                self._learn(name, (await exchange(pool, [("COMMAND", "INFO", name)]))[0])
            seconds = reply_seconds(call)
            try:
                replies = await exchange(pool, commands(call), asking=asking, seconds=seconds)
                if isinstance(replies[0], redis_errors.NoScriptError):
                    replies = await exchange(pool, commands(call, text=True), asking=asking, seconds=seconds)
            except TROUBLE as error:
                if is_cut_off(error):
                    await self._refuse_oversized(call, pool)
                raise
            if is_refused_size(replies[0]):
                await self._refuse_oversized(call, pool, said=True)
            return replies

        result: T = self._result(call, await self._routed(stage, call.keys[0], work))
        return result

    async def _refuse_oversized(self, call: Call[Any], pool: Any, *, said: bool = False) -> None:
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
            limits = limits_in(await exchange(pool, ASK_LIMITS))
            said = said or (not limits and await refuses_announced(pool, size))
        if (refused := oversized(call, self.server, size, limits, said=said)) is not None:
            raise refused

    async def _meet(self, pool: Any) -> None:
        """First contact: until it succeeds nothing was sent that could have taken effect."""
        self._met((await exchange(pool, [("PING",)]))[0])

    async def _wrong_type(self, call: Call[Any]) -> Exception | None:
        for position, key in enumerate(call.keys):
            found = await self._routed(Stage.CALLS, key, partial(exchange, sent=[("TYPE", key)]))
            if (named := error_mapping.mistyped(call, position, found[0])) is not None:
                return named
        return None

    async def _listen(self, wait: Wait, stopped: Callable[[], bool] | None, pool: Any, *, asking: bool) -> list[Any]:
        """The reply to BLPOP, None when the sleep ended before it came."""
        async with borrowed(pool) as connection:
            sent: list[Command] = [("BLPOP", wait.wakeup, wait.seconds)]
            await send(connection, connection.pack_commands([*ASKING, *sent] if asking else sent))
            if asking:
                await read(connection)
            end = elapsed_clock() + wait.seconds + WAIT_MARGIN_SECONDS
            reading = asyncio.ensure_future(read(connection, wait.seconds + WAIT_MARGIN_SECONDS))
            try:
                while not reading.done():
                    if elapsed_clock() > end or (stopped is not None and stopped()):
                        raise _Ended
                    await asyncio.wait({reading}, timeout=STOP_SLICE_SECONDS if stopped is not None else None)
                return [heard(reading.result())]
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)  # nobody reads on a connection that goes back

    async def _sleep(self, notes: list[RetryNote], on_retry: Callable[[RetryNote], Any] | None, seconds: float) -> None:
        if on_retry is not None:
            told = on_retry(notes[-1])
            if isawaitable(told):
                await told
        await asyncio.sleep(seconds)

    # ------------------------------------------------------------------ where

    async def _routed(self, stage: str, key: bytes, work: Work) -> list[Any]:
        """Do a piece of work on the node that has a key, wherever a cluster says that it is; returns its replies."""
        place: Node | None = None
        asking = False
        replies: list[Any] = []
        for _ in range(MAX_REDIRECTS):
            pool, node = await self._pool(stage, key, place)
            try:
                replies = await work(pool, asking=asking)
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

    async def _pool(self, stage: str, key: bytes, place: Node | None) -> tuple[Any, Node | None]:
        """The pool for a key, and in a cluster the node that it leads to."""
        client = self.client
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        if not isinstance(client, redis.asyncio.RedisCluster):
            if stage == Stage.CALLS:
                return client.connection_pool, None
            if stage not in pools:
                pools[stage] = derived_pool(client.connection_pool, stage, _NO_RETRY)
            return pools[stage], None
        with CancellationGuard():
            await client.initialize()  # once
        node = place or self._routes.get(key_slot(key)) or owner(client, key)
        if (stage, node) not in pools:
            pools[stage, node] = self._node_pool(client, stage, node)
        return pools[stage, node], node

    @staticmethod
    def _node_pool(client: redis.asyncio.RedisCluster, stage: str, node: Node) -> Any:
        like = client.get_nodes()[0]
        options = node_options(like.connection_kwargs, stage, _NO_RETRY, node)
        return redis.asyncio.ConnectionPool(connection_class=like.connection_class, **options)
