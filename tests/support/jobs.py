"""Queues of jobs for tests, in both flavours with one synchronous interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import redis
import redis.asyncio

from sluicegate.asyncio import Batch
from sluicegate.asyncio import jobs as asynchronous
from sluicegate.asyncio.jobs.lease import Jobs
from sluicegate.jobs import RedisJobQueue
from tests.support.flavours import Loop

MakeJobs = Callable[..., Any]
_WRAPPED = (Batch, asynchronous.RedisJobQueue, asynchronous.Job, asynchronous.ClaimedJob, asynchronous.JobLease, Jobs)


class Twin:
    """An asyncio object of the room with a synchronous interface; what it returns is wrapped, too."""

    def __init__(self, target: Any, loop: Loop) -> None:
        vars(self).update(_target=target, _loop_of=loop)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return self._wrap(value)

        def call(*args: Any, **options: Any) -> Any:
            given = [unwrapped(one) for one in args]
            return self._wrap(self._loop_of.run(lambda: value(*given, **options)))

        return call

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, _WRAPPED):
            return Twin(value, self._loop_of)
        if isinstance(value, list):
            return [self._wrap(one) for one in value]
        if isinstance(value, dict):
            return {key: self._wrap(one) for key, one in value.items()}
        return value

    def __enter__(self) -> Twin:
        self._loop_of.run(self._target.__aenter__)
        return self

    def __exit__(self, *why: Any) -> Any:
        return self._loop_of.run(lambda: self._target.__aexit__(*why))

    def __iter__(self) -> Iterator[Any]:
        return (self._wrap(one) for one in self._target)

    def __getitem__(self, index: Any) -> Any:
        return self._wrap(self._target[index])

    def __len__(self) -> int:
        return len(self._target)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __hash__(self) -> int:
        return hash(self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Twin) and other._target is self._target

    def __repr__(self) -> str:
        return f"Twin({self._target!r})"


class JobMaker:
    """Makes queues of jobs of one flavour, each with a client of its own, and closes them."""

    def __init__(self, client: redis.Redis, loop: Loop | None) -> None:
        self._client = client
        self._loop = loop
        self._closes: list[Callable[[], Any]] = []

    def __call__(self, name: str = "work", **options: Any) -> Any:
        kept = self._client.connection_pool.connection_kwargs
        place = {key: kept[key] for key in ("host", "port", "path", "db", "username", "password") if key in kept}
        if "path" in place:
            place["unix_socket_path"] = place.pop("path")
        if self._loop is None:
            client = redis.Redis(**place)
            queue = RedisJobQueue(name, **({} if "url" in options else {"client": client}), **options)
            self._closes += [queue.close, client.close]
            return queue
        apart = redis.asyncio.Redis(**place)
        given = {} if "url" in options else {"client": apart}
        twin = Twin(asynchronous.RedisJobQueue(name, **given, **options), self._loop)
        loop = self._loop
        self._closes += [twin.close, lambda: loop.run(apart.aclose)]
        return twin

    def close(self) -> None:
        for close in self._closes:
            close()


def unwrapped(value: Any) -> Any:
    """Return an argument with the asyncio objects that stand behind what a test holds."""
    if isinstance(value, Twin):
        return value._target
    if isinstance(value, dict):
        return {unwrapped(key): one for key, one in value.items()}
    return value
