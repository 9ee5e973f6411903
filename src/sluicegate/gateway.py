# Made from src/sluicegate/asyncio/gateway.py by `make format`; edit there.
"""How a prepared call reaches Redis: scripts by hash, retries within a budget, errors of our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

import tenacity

from sluicegate._gateway_base import (
    MAX_REDIRECTS,
    OPTIONS_ELSEWHERE,
    Course,
    GatewayBase,
    RetryNote,
    commands,
    reply_seconds,
)
from sluicegate._redis import encryption, error_mapping
from sluicegate._redis.cluster_routes import Node
from sluicegate._redis.compat import presentable
from sluicegate._redis.connection import Address
from sluicegate._redis.connection_io import HeldConnection, exchange, packed, refuses_announced
from sluicegate._redis.error_mapping import IO_ERRORS
from sluicegate._redis.pools import Client, ClientPools, borrow, give_back, read, send_whole
from sluicegate._redis.pools_base import STOP_SLICE_SECONDS, Command, Stage, WaitEnded, has_one_connection
from sluicegate._redis.size_limits import (
    ASK_LIMITS,
    is_cut_off,
    is_refused_size,
    largest_argument,
    limits_in,
    oversized,
    within_any_limit,
)
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import Call, Wait
from sluicegate.errors import GroupNotFoundError, RedisAccessError, WrongKeyTypeError
from sluicegate.runtime import apart, await_answer, sleep
from sluicegate.signatures import explains_unknown_options

__all__ = ["Client", "Gateway", "RedisGateway"]

T = TypeVar("T")
Work = Callable[..., list[Any]]  # (pool, asking=…) -> raw replies; errors are among them
_CALLS_PER_WRITE = 256
_log = logging.getLogger("sluicegate")


class Gateway(Protocol):
    """A way of reaching Redis. `RedisGateway` is the library's; yours can be passed to a queue as `gateway=`.

    `sluicegate.testing.gateways` checks an implementation against this contract:

    - A call goes to the server that is the primary for `call.keys[0]`: EVALSHA with `call.script.sha`, all `call.keys`
      and `call.args`. When the server answers NOSCRIPT, send EVAL with `call.script.text`. Read the reply raw, as
      bytes, and pass it to `call.decode`, which returns the result.
    - Send a command in `call.then` right behind the script, on the same connection and in the same write, at every
      attempt. The result is then a pair: the decoded reply, and the raw reply to `then`. An error that the server
      answers to `then` is the second half of that pair and is not raised.
    - A call may be sent any number of times. Each attempt sends `call.later(seconds since the first)`. Without that, a
      publish repeated after its receipt has expired would be published twice.
    - Threads, or the tasks of an event loop, share the object, and it can be used after a fork.

    Attributes:
        retry_budget_seconds: how long a call may be retried; a queue keeps its receipts for longer.
    """

    retry_budget_seconds: float

    @property
    def server(self) -> str:
        """Return where the gateway connects to, in words for errors; never a password."""

    @property
    def decodes_responses(self) -> bool:
        """Return whether handlers get str instead of bytes."""

    @property
    def address(self) -> Address | None:
        """Return where the gateway connects to, in a form for other processes; None when there is none."""

    def execute(self, call: Call[T], *, retry: bool = True, on_retry: Callable[[RetryNote], Any] | None = None) -> T:
        """Execute one call.

        Args:
            call: what to send.
            retry: False: one attempt of a few seconds at most, on a connection that no retried call can occupy.
            on_retry: called before each pause between attempts; asyncio gateways await what it returns.

        Raises:
            RedisUnavailableError: nobody answers there, or no connection came free for the whole budget; nothing was
                sent that could have taken effect.
            RedisRefusedError: the server answered for the whole budget that it cannot do it now; nothing was changed.
            RetryBudgetExhaustedError: the server was reached, and then stayed away for the whole budget, or for the one
                attempt.
            RedisMemoryError, WrongKeyTypeError: Redis refused the call; nothing was changed.
            RedisAccessError: Redis refused the credentials or the user's rights.
            ConfigurationError: the server does not know the command in `then`; nothing was sent.
        """

    def send(self, call: Call[T], *, on_retry: Callable[[RetryNote], Any] | None = None) -> Callable[[], T]:
        """Send a call without waiting for its reply, so that the caller can prepare its next call meanwhile.

        Other calls may be executed before the reply is read. A gateway that cannot send ahead may return a function
        that executes the call.

        Args:
            call: what to send.
            on_retry: as for `execute`.

        Returns:
            A function that waits for the reply; the caller calls it once. It repeats the call and raises errors as
            `execute` does.
        """

    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until a wake-up token arrives, time is up or `stopped()` is true.

        Block on a connection that nothing else needs. The sleep ends within 0.2 s once `stopped()` is true, and sends
        nothing more then. A lost connection may end the sleep early, but not at once: the caller checks again.

        Returns:
            Whether a token arrived.
        """

    def close(self) -> None:
        """Close the connections that the gateway made; they are made again when needed. May be called repeatedly."""


class RedisGateway(GatewayBase):
    """Executes prepared calls over one redis-py client, for a single server, Sentinels or a cluster.

    A gateway that has never been answered fails at once, within the client's connect timeout, when nobody can be
    connected to: neither the server, nor any Sentinel, nor any node. It retries every other failure that may pass for
    up to `retry_budget_seconds`, during which a Sentinel or a cluster may name another primary.

    The gateway retries by itself, on connections of which redis-py retries nothing. Threads share no lock around I/O,
    and a forked child makes its own connections. An asyncio gateway made from a URL serves any number of event loops,
    one after the other or at once; a cancellation closes the connection on which a reply is outstanding.

    Args:
        redis_client: a connected or unconnected client; the gateway does not close it.
        url: where to connect instead; see `Address.parse`. The client is made at the first call.
        retry_budget_seconds: how long a call is retried, attempts included, by a monotonic clock. 0 disables.
        retry_initial_delay_seconds: first pause between attempts; pauses double, with jitter.
        retry_max_delay_seconds: longest pause.

    Raises:
        ConfigurationError: a client that a gateway cannot use, or a retry parameter that makes no sense.
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
        self._pools = ClientPools(redis_client, self.address)

    @property
    def client(self) -> Client:
        """Return the client, which is made on first use."""
        return self._pools.client

    def execute(
        self,
        call: Call[T],
        *,
        retry: bool = True,
        on_retry: Callable[[RetryNote], Any] | None = None,
        held: HeldConnection | None = None,
    ) -> T:
        """Execute one call, with retries unless told otherwise; see `Gateway.execute`.

        Args:
            call: what to send.
            retry: as there.
            on_retry: as there.
            held: what `hold` returned: the first attempt uses and keeps its connection, which is none of the client's.
        """
        start, course = elapsed_clock(), Course(call.doubtful)
        stage = Stage.SINGLE if not retry else Stage.CALLS if held is None else Stage.LOOPS
        try:
            try:
                return self._once(call, stage, held)
            except Exception as error:
                self._refuse_other_encryption(error)
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
            raise explained from presentable(error)

    def send(
        self,
        call: Call[T],
        *,
        on_retry: Callable[[RetryNote], Any] | None = None,
        held: HeldConnection | None = None,
    ) -> Callable[[], T]:
        """Send a call without waiting for its reply; see `Gateway.send`.

        Args:
            call: what to send.
            on_retry: as for `execute`.
            held: what `hold` returned: the call uses and keeps its connection.
        """
        start = elapsed_clock()

        def again(*, doubtful: bool = False) -> T:
            later = replace(call.later(elapsed_clock() - start), doubtful=doubtful)
            return self.execute(later, on_retry=on_retry)

        if not self._reached or call.then:
            return again
        take, end = (borrow, give_back) if held is None else (held.take, held.keep)
        try:
            pool, _ = self._pools.find(Stage.CALLS, call.keys[0], None)
            if has_one_connection(pool):
                return again
            connection = take(pool)
        except IO_ERRORS:  # `execute` meets the error again and explains it
            return again
        try:
            send_whole(connection, packed(commands(call)))
        except BaseException as error:
            end(pool, connection, intact=False)
            if not isinstance(error, IO_ERRORS):
                raise
            return partial(again, doubtful=True)

        def receive() -> T:
            intact, lost = False, False
            try:
                reply = read(connection)
                intact = not error_mapping.ends_connection(reply)
            except IO_ERRORS as error:
                lost, reply = True, error
            finally:
                end(pool, connection, intact=intact)
            return again(doubtful=lost) if isinstance(reply, Exception) else call.decode(reply)

        return receive

    def hold(self) -> HeldConnection | None:
        """Return what keeps a connection over several calls, until its `close`; None: nothing does.

        A subclass with a `send` or an `execute` of its own keeps no connection.
        """
        own = type(self)
        is_ours = own.send is RedisGateway.send and own.execute is RedisGateway.execute
        return HeldConnection() if is_ours else None

    def execute_many(self, calls: Sequence[Call[Any]], *, retry: bool = True) -> list[Any]:
        """Execute independent calls, sent in one write per server; of a cluster, only slots that moved cost more.

        Args:
            calls: without a `then`.
            retry: as for `execute`.

        Returns:
            Per call its result, or the error by which Redis refused this call: of another type than its keys' values,
            beyond the user's rights, or about a group that does not exist.

        Raises:
            RedisUnavailableError, RedisRefusedError, RetryBudgetExhaustedError, RedisMemoryError: as `execute` does.
        """
        alone = partial(self._execute_or_error, retry=retry)
        results = [] if self._reached else [alone(call) for call in calls[:1]]
        for start in range(len(results), len(calls), _CALLS_PER_WRITE):
            chunk = calls[start : start + _CALLS_PER_WRITE]
            replies = self._send_together(chunk, Stage.CALLS if retry else Stage.SINGLE)
            for call, reply in zip(chunk, replies, strict=True):
                results.append(alone(call) if isinstance(reply, Exception) else call.decode(reply))
        return results

    def wait(self, wait: Wait, stopped: Callable[[], bool] | None = None) -> bool:
        """Sleep until a wake-up token arrives; see `Gateway.wait`."""
        command = ("BLPOP", wait.wakeup, wait.seconds)
        return self._listen(wait.wakeup, command, wait.seconds, stopped) is not None

    def follow(
        self, key: bytes, after: bytes, seconds: float, stopped: Callable[[], bool] | None = None
    ) -> list[tuple[bytes, list[bytes]]]:
        """Read what was added to a stream, or wait until something is.

        It blocks on a connection that nothing else needs, as `wait` does. A lost connection ends it early.

        Args:
            key: the stream.
            after: the id of the last entry that was read.
            seconds: how long to wait.
            stopped: ends the wait within 0.2 s once it is true.

        Returns:
            The entries, oldest first: the id of each, and its fields and values in turn; none when time was up.
        """
        command = ("XREAD", "BLOCK", max(1, int(seconds * 1000)), "STREAMS", key, after)
        reply = self._listen(key, command, seconds, stopped)
        if not reply:
            return []
        ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
        return [(entry_id, fields) for entry_id, fields in entries if fields]

    def _listen(self, key: bytes, command: Command, seconds: float, stopped: Callable[[], bool] | None) -> Any | None:
        """Return the reply to a command that blocks; None when time is up or the connection is lost."""
        try:
            work = partial(self._pools.listen, command, seconds, stopped)
            reply = self._routed(Stage.WAITING, key, work)[0]
            if isinstance(reply, Exception):
                raise reply
            return reply
        except WaitEnded:
            return None
        except Exception as error:  # noqa: BLE001  (all but transient ones are raised)
            if not error_mapping.is_transient(error):
                raise error_mapping.access_refused(self.server, error) or error from None
            _log.warning("waiting on %s ended early: %s", self.server, type(error).__name__)
            sleep(min(2 * STOP_SLICE_SECONDS, seconds))
            return None

    def ask(self, sent: Sequence[Command] | Mapping[str, Sequence[Command]]) -> dict[str, list[Any]]:
        """Ask each server something about itself, such as INFO, or for a page of its keys; nothing is retried.

        Args:
            sent: commands that every server gets, or those for each server by its address.

        Returns:
            By server, which has the address `host:port` in a cluster, the raw replies, errors among them.

        Raises:
            RedisUnavailableError: a server that has keys does not answer within a few seconds.
            RedisAccessError: it refuses the credentials.
        """
        replies = {}
        try:
            for name, pool in self._pools.find_servers(Stage.SINGLE).items():
                server = name or self.server
                if wanted := sent.get(server, ()) if isinstance(sent, Mapping) else sent:
                    replies[server] = exchange(pool, wanted)
        except Exception as error:
            explained: Exception | None = error_mapping.access_refused(self.server, error)
            if explained is None and error_mapping.is_transient(error):
                explained = error_mapping.unavailable(self.server, error)
            if explained is None:
                raise
            raise explained from presentable(error)
        self._reached = True
        return replies

    def close(self) -> None:
        """Close the connections that this gateway made, of asyncio those of this event loop.

        A client given by the user stays open.
        """
        self._pools.close()

    def _execute_or_error(self, call: Call[T], *, retry: bool) -> T | Exception:
        try:
            return self.execute(call, retry=retry)
        except (WrongKeyTypeError, RedisAccessError, GroupNotFoundError) as error:
            return error

    def _send_together(self, calls: Sequence[Call[Any]], stage: str) -> list[Any]:
        """Send calls in one write per server and return their raw replies, or the errors in their place."""
        by_pool: dict[int, tuple[Any, list[int]]] = {}
        replies: list[Any] = [None] * len(calls)
        try:
            for position, call in enumerate(calls):
                pool, _ = self._pools.find(stage, call.keys[0], None)
                by_pool.setdefault(id(pool), (pool, []))[1].append(position)
            for pool, positions in by_pool.values():
                for position, reply in zip(
                    positions, _exchange_together(pool, [calls[position] for position in positions]), strict=True
                ):
                    replies[position] = reply
        except IO_ERRORS as error:  # `execute` meets the error again and explains it
            return [error if reply is None else reply for reply in replies]
        return replies

    # ------------------------------------------------------------------ one attempt

    def _again(
        self,
        call: Call[T],
        course: Course,
        start: float,
        first: Exception,
        on_retry: Callable[[RetryNote], Any] | None,
    ) -> T:
        """Repeat a call whose first attempt failed; a first attempt that succeeds skips this."""
        failed, notes = [first], list[RetryNote]()

        def attempt() -> T:
            if failed:
                raise failed.pop()
            return self._once(call.later(elapsed_clock() - start), Stage.CALLS)

        retrying = tenacity.Retrying(
            sleep=partial(self._sleep, notes, on_retry), **self._policy(call, course, notes, start)
        )
        return retrying(attempt)

    def _once(self, call: Call[T], stage: str, held: HeldConnection | None = None) -> T:
        def work(pool: Any, *, asking: bool) -> list[Any]:
            if not self._reached:
                self._meet(pool)
            if (name := self._needs_check(call)) is not None:
                self._learn(name, exchange(pool, [("COMMAND", "INFO", name)])[0])
            seconds = reply_seconds(call)
            try:
                replies = exchange(pool, commands(call), asking=asking, seconds=seconds, held=held)
                if isinstance(replies[0], error_mapping.UnknownScriptError):
                    replies = exchange(pool, commands(call, text=True), asking=asking, seconds=seconds)
            except IO_ERRORS as error:
                if is_cut_off(error):
                    self._refuse_oversized(call, pool)
                raise
            if isinstance(replies[0], Exception) and is_refused_size(replies[0]):
                self._refuse_oversized(call, pool, said=True)
            return replies

        result: T = self._result(call, self._routed(stage, call.keys[0], work))
        return result

    def _refuse_oversized(self, call: Call[Any], pool: Any, *, said: bool = False) -> None:
        """Find out after a failed attempt whether the server does not accept the size of an argument.

        Args:
            call: the call that failed.
            pool: of the server.
            said: whether the server said so.

        Raises:
            PayloadTooLargeError: the server does not accept it, and no repetition helps.
        """
        size = largest_argument(call)
        if within_any_limit(size):
            return
        limits: dict[str, int] = {}
        with suppress(*IO_ERRORS):  # the next attempt finds out
            limits = limits_in(exchange(pool, ASK_LIMITS))
            said = said or (not limits and refuses_announced(pool, size))
        if (refused := oversized(call, self.server, size, limits, said=said)) is not None:
            raise refused

    def _refuse_other_encryption(self, error: Exception) -> None:
        """Refuse a server that speaks TLS where the URL does not, or the reverse, after a failed first contact.

        Raises:
            ConfigurationError: no repetition helps.
        """
        if self._reached or self.address is None or not encryption.may_differ(self.address, error):
            return
        if (refused := apart(encryption.other_encryption, self.address)) is not None:
            raise refused from presentable(error)

    def _meet(self, pool: Any) -> None:
        """Make first contact; until that succeeds, nothing was sent that could have taken effect."""
        self._mark_reached(exchange(pool, [("PING",)])[0])

    def _wrong_type(self, call: Call[Any]) -> Exception | None:
        for position, key in enumerate(call.keys):
            found = self._routed(Stage.CALLS, key, partial(exchange, sent=[("TYPE", key)]))
            if (named := error_mapping.mistyped(call, position, found[0])) is not None:
                return named
        return None

    def _sleep(self, notes: list[RetryNote], on_retry: Callable[[RetryNote], Any] | None, seconds: float) -> None:
        if on_retry is not None:
            answer = on_retry(notes[-1])
            if isawaitable(answer):
                await_answer(answer, "on_retry")
        sleep(seconds)

    # ------------------------------------------------------------------ where

    def _routed(self, stage: str, key: bytes, work: Work) -> list[Any]:
        """Do a piece of work on the node that has a key, following a cluster's redirections; return its replies."""
        place: Node | None = None
        asking = False
        replies: list[Any] = []
        for _ in range(MAX_REDIRECTS):
            pool, node = self._pools.find(stage, key, place)
            try:
                replies = work(pool, asking=asking)
            except Exception as error:
                if node is not None and error_mapping.is_transient(error):
                    self._pools.suspect(key, node)
                raise
            if not isinstance(replies[0], Exception):
                break
            redirect = error_mapping.redirection(replies[0])
            if redirect is None:
                if node is not None and error_mapping.is_transient(replies[0]):
                    self._pools.suspect(key, node)
                break
            place, asking = self._redirected(redirect, node), redirect.asking
            if not asking:
                self._pools.learn(key, place)
        return replies


def _exchange_together(pool: Any, calls: Sequence[Call[Any]]) -> list[Any]:
    """Exchange the calls for one server, and those whose script it did not know once more, each script's text once."""
    replies = exchange(pool, [commands(call)[0] for call in calls])
    unknown = [place for place, reply in enumerate(replies) if isinstance(reply, error_mapping.UnknownScriptError)]
    if unknown:
        first = {calls[place].script.sha: place for place in reversed(unknown)}
        again = [commands(calls[place], text=first[calls[place].script.sha] == place)[0] for place in unknown]
        for place, reply in zip(unknown, exchange(pool, again), strict=True):
            replies[place] = reply
    return replies
