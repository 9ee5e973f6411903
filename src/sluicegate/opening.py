# Made from src/sluicegate/asyncio/opening.py by `make format`; edit there.
"""Makes what a spec, a place or a URL names: a queue, a stream, a group of a stream, or a queue of jobs."""

from __future__ import annotations

from typing import Any

from sluicegate.consumer import QueueConsumer
from sluicegate.errors import ConfigurationError
from sluicegate.jobs.queue import RedisJobQueue
from sluicegate.place import Place
from sluicegate.queue import RedisMessageQueue
from sluicegate.spec import QueueSpec
from sluicegate.streams.group import ConsumerGroup
from sluicegate.streams.stream import RedisStreamQueue

__all__ = ["open_place", "open_spec", "open_url"]


def open_spec(spec: QueueSpec) -> QueueConsumer:
    """Make what a spec describes, to consume from it. It connects at its first command.

    Args:
        spec: from `queue.spec()`, of a queue, a group of a stream or a queue of jobs.

    Raises:
        ConfigurationError: the spec describes a stream, from which only its groups consume.
    """
    if spec.kind == "queue":
        return RedisMessageQueue.from_spec(spec)
    if spec.kind == "group":
        return ConsumerGroup.from_spec(spec)
    if spec.kind == "jobs":
        return RedisJobQueue.from_spec(spec)
    raise ConfigurationError(f"a {spec.kind} cannot be made from its spec yet")


def open_place(place: Place, **options: Any) -> Any:
    """Make what a place names: a queue, a stream or a group. It connects at its first command.

    Args:
        place: a queue, a stream or a group of a stream.
        options: where Redis is (`url`, `client` or `gateway`), and the options of what the place is.

    Raises:
        ConfigurationError: an option that cannot work.
    """
    if not place.stream:
        return RedisMessageQueue(place.name, **options)
    if place.group is None:
        return RedisStreamQueue(place.name, **options)
    return ConsumerGroup(place.name, place.group, **options)


def open_url(url: str, **options: Any) -> Any:
    """Make what a URL such as `redis+sluicegate://host:6379/0?queue=orders` names. It connects at its first command.

    Args:
        url: of a Redis and a place on it; see `Place.parse_url`.
        options: of what the URL names.

    Raises:
        ConfigurationError: it is no such URL, or an option that cannot work.
    """
    redis_url, place = Place.parse_url(url)
    return open_place(place, url=redis_url, **options)
