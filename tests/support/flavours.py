"""A queue has four flavours: sync or asyncio, with clients that decode or do not.

`Blocking` gives an asyncio queue the synchronous interface, so that one suite tests both.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import redis
import redis.asyncio

from sluicegate import RedisMessageQueue
from sluicegate.streams import ConsumerGroup, GroupOptions, RedisStreamQueue

T = TypeVar("T")
MakeQueue = Callable[..., RedisMessageQueue]
MakeStream = Callable[..., RedisStreamQueue]
MakeGroup = Callable[..., ConsumerGroup]
_WAIT_SECONDS = 100.0


@dataclass(frozen=True)
class Flavour:
    """A way to make a test's queues."""

    asyncio: bool = False
    decodes: bool = False
    protocol: int | None = None  # of RESP; None leaves it to redis-py

    def options(self) -> dict[str, Any]:
        """Return the options of this flavour's clients."""
        protocol = {} if self.protocol is None else {"protocol": self.protocol}
        return {"decode_responses": True, **protocol} if self.decodes else protocol

    def shown(self, payload: bytes) -> str | bytes:
        """Return a payload as handlers of this flavour get it."""
        return payload.decode() if self.decodes else payload

    def __str__(self) -> str:
        return f"{'asyncio' if self.asyncio else 'sync'}-{'str' if self.decodes else 'bytes'}"


FLAVOURS = [Flavour(asynchronous, decodes) for asynchronous in (False, True) for decodes in (False, True)]


class Loop:
    """An event loop in a thread of its own.

    Args:
        context: in which every call runs, as the statements of one task do; None: each runs in a copy of the caller's.
    """

    def __init__(self, context: Context | None = None) -> None:
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, start: Callable[[], Any]) -> Any:
        """Call a function in the loop's thread, await its result if that is awaitable, and return it."""

        async def call() -> tuple[Any, BaseException | None]:
            try:
                result = start()
                return await result if inspect.isawaitable(result) else result, None
            except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, they would end the loop
                return None, error

        async def in_one_context() -> tuple[Any, BaseException | None]:
            return await asyncio.create_task(call(), context=self._context)

        future = asyncio.run_coroutine_threadsafe(call() if self._context is None else in_one_context(), self._loop)
        try:
            result, error = future.result(_WAIT_SECONDS)
        except BaseException:
            future.cancel()
            raise
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """An asyncio object with a synchronous interface."""

    def __init__(self, target: Any, loop: Loop) -> None:
        vars(self).update(_target=target, _loop_of=loop)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            return self._wrap(self._loop_of.run(lambda: value(*args, **options)))

        return call

    def _wrap(self, value: Any) -> Any:
        if inspect.isasyncgen(value):
            return self._iterate(value)
        if hasattr(value, "__aenter__") or _is_batch(value):
            return Blocking(value, self._loop_of)
        return value

    def _iterate(self, generator: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop_of.run(generator.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            self._loop_of.run(generator.aclose)

    def __enter__(self) -> Any:
        entered = self._loop_of.run(self._target.__aenter__)
        return self if entered is self._target else self._wrap(entered)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        return self._loop_of.run(lambda: self._target.__aexit__(kind, error, traceback))

    def __len__(self) -> int:
        return len(self._target)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._target, "__aiter__"):
            return self._iterate(self._target.__aiter__())
        return iter(self._target)

    def __next__(self) -> Any:
        try:
            return self._loop_of.run(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self) -> str:
        return f"Blocking({self._target!r})"


def _is_batch(value: Any) -> bool:
    """Return whether a value is an asyncio batch, whose methods are awaited."""
    from sluicegate.asyncio import Batch

    return isinstance(value, Batch)


class Pair:
    """A stream and a group of it with the interface of a queue, so that one suite tests both."""

    def __init__(self, stream: Any, group: Any) -> None:
        self.stream = stream
        self.group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream if name.startswith("publish") else self.group, name)

    def drain(self, timeout: float | None = 30.0) -> bool:
        """Stop both; return whether nothing is under way any more."""
        return all([self.group.drain(timeout), self.stream.shutdown(timeout)])

    shutdown = drain

    def close(self) -> None:
        """Close the group and the stream."""
        self.group.close()
        self.stream.close()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Pair({self.group!r})"


def synchronous(queue: Any, client: redis.Redis) -> Any:
    """Return another consumer and publisher of the same place, which a handler of any flavour can use."""
    if not queue.session.keys.group:
        return RedisMessageQueue(queue.name, client=client)
    stream = RedisStreamQueue(queue.name, client=client)
    return Pair(stream, stream.group(queue.session.keys.group, start="beginning"))


class Maker:
    """Makes queues of one flavour, and closes them."""

    def __init__(self, flavour: Flavour, client: redis.Redis, loop: Loop) -> None:
        self.flavour = flavour
        self._client = client
        self._loop = loop
        self._made: list[Any] = []
        self._clients: list[Any] = []

    def __call__(self, name: str = "orders", **options: Any) -> Any:
        from sluicegate.asyncio import RedisMessageQueue as AsyncQueue

        return self._make(RedisMessageQueue, AsyncQueue, name, options)

    def stream(self, name: str = "orders", **options: Any) -> Any:
        """Make a stream instead of a queue."""
        from sluicegate.asyncio.streams import RedisStreamQueue as AsyncStream

        return self._make(RedisStreamQueue, AsyncStream, name, options)

    def group(self, stream: str = "orders", group: str = "billing", **options: Any) -> Any:
        """Make a group of a stream, which starts at the stream's beginning unless told otherwise."""
        from sluicegate.asyncio.streams import ConsumerGroup as AsyncGroup

        options.setdefault("start", "beginning")
        return self._make(
            lambda name, **more: ConsumerGroup(name, group, **more),
            lambda name, **more: AsyncGroup(name, group, **more),
            stream,
            options,
        )

    def pair(self, name: str = "orders", **options: Any) -> Any:
        """Make a stream with its group `billing` that look like one queue."""
        for_group = {one: value for one, value in options.items() if one in GroupOptions.__annotations__}
        place = {one: options[one] for one in ("client", "gateway", "url") if one in options}
        for_stream = {one: value for one, value in options.items() if one not in {*for_group, *place}}
        both = ("interrupt", "on_event", "retry_budget_seconds")
        shared = {one: for_group[one] for one in both if one in for_group}
        group = self.group(name, **place, **for_group)
        return Pair(self.stream(name, **place, **for_stream, **shared), group)

    def _make(self, kind: Any, async_kind: Any, name: str, options: dict[str, Any]) -> Any:
        if "gateway" in options:
            return self._keep(kind(name, **options))
        if "url" not in options:
            options["client"] = self._like(options.get("client", self._client), **self.flavour.options())
        if not self.flavour.asyncio:
            return self._keep(kind(name, **options))
        return self._keep(Blocking(async_kind(name, **options), self._loop))

    def close(self) -> None:
        for queue in self._made:
            queue.close()
        for client in self._clients:
            if isinstance(client, redis.asyncio.Redis):
                self._loop.run(client.aclose)
            else:
                client.close()

    def _keep(self, queue: Any) -> Any:
        self._made.append(queue)
        return queue

    def _like(self, client: redis.Redis, **more: Any) -> Any:
        """Return a client of this flavour that connects to the server of `client`."""
        if not self.flavour.asyncio and not more:
            return client
        pool = client.connection_pool
        given = {**pool.connection_kwargs, **more}
        unix = "path" in given
        kept = {
            name: given[name]
            for name in (
                "host",
                "port",
                "path",
                "db",
                "username",
                "password",
                "socket_timeout",
                "decode_responses",
                "protocol",
            )
            if name in given
        }
        module: Any = redis.asyncio if self.flavour.asyncio else redis
        kept["retry"] = self._no_retry()
        connection = module.UnixDomainSocketConnection if unix else module.Connection
        made = module.Redis(connection_pool=module.ConnectionPool(connection_class=connection, **kept))
        self._clients.append(made)
        return made

    def _no_retry(self) -> Any:
        if self.flavour.asyncio:
            from redis.asyncio.retry import Retry
        else:
            from redis.retry import Retry  # type: ignore[assignment]
        from redis.backoff import NoBackoff

        return Retry(NoBackoff(), 0)
