"""Reads the depths of the queues and groups of many resources: one write per server, several servers at a time."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dagster_sluicegate.places import label_of
from dagster_sluicegate.urls import impatient_url
from sluicegate import Depth, RedisGateway
from sluicegate._redis.connection import Address
from sluicegate.depths import read_depths
from sluicegate.errors import GroupNotFoundError, RedisMessageQueueError
from sluicegate.opening import open_place
from sluicegate.place import Place

__all__ = ["Located", "identify", "read_dead", "read_places"]

_SERVERS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class Located:
    """Where a queue, or a group of a stream, is.

    Attributes:
        url: of its server.
        place: its name there.
        start: where a group that does not exist yet begins; None: it is an error.
    """

    url: str
    place: Place
    start: str | None = None

    def open(self) -> Any:
        """Open it for a look: with short timeouts, and without retries."""
        begins = {} if self.start is None or self.place.group is None else {"start": self.start}
        return open_place(self.place, url=impatient_url(self.url), retry_budget_seconds=0, **begins)

    @property
    def queue_id(self) -> str:
        """Return its name with a mark of its server."""
        return identify(self.url, self.place)


def identify(url: str, place: Place) -> str:
    """Return the name of a place with a mark of its server, which is the same for every user and option of the URL.

    The mark is a hash: tags are shown in the UI, where a URL has no place.
    """
    parts = urlsplit(Address.parse(url).url)
    server = (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, *parse_qs(parts.query).get("db", ()))
    return f"{label_of(place)}@{hashlib.sha256(repr(server).encode()).hexdigest()[:8]}"


def read_places(
    places: Mapping[str, Located], *, first: Collection[str] = (), seconds: float
) -> dict[str, Depth | Exception]:
    """Read the depths of many queues, without retries.

    A server that does not answer costs its own queues only. The servers come in an order that changes with every call,
    so that slow ones cannot keep the same others from being read.

    Args:
        places: of the queues, by an id.
        first: ids of queues whose servers are read before the others.
        seconds: for all of them; a server that has not answered by then is left out.

    Returns:
        By id the depth, or why it could not be read; nothing of a queue that the time did not suffice for.
    """
    by_url: defaultdict[str, list[str]] = defaultdict(list)
    for queue_id, place in places.items():
        by_url[place.url].append(queue_id)
    order = random.sample(list(by_url), len(by_url))
    order.sort(key=lambda url: set(first).isdisjoint(by_url[url]))
    pool = ThreadPoolExecutor(min(_SERVERS_AT_A_TIME, len(order)) or 1, thread_name_prefix="sluicegate-depths")
    try:
        readings = {
            pool.submit(_read_server, url, [places[queue_id] for queue_id in by_url[url]]): by_url[url] for url in order
        }
        found: dict[str, Depth | Exception] = {}
        with suppress(TimeoutError):
            for reading in as_completed(readings, timeout=seconds):
                depths = reading.result()
                found |= {queue_id: depths[places[queue_id].place] for queue_id in readings[reading]}
        return found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what still waits for a server ends with its timeouts


def read_dead(where: Located) -> tuple[int, Depth]:
    """Read how many messages of a queue ever became dead letters, and its depth, without retries.

    Raises:
        RedisUnavailableError: Redis cannot be reached; names host and port.
    """
    with where.open() as queue:
        stats = queue.stats()  # before the depth: a message that dies between the two is one that has died since
        return stats.buried + stats.foreign, queue.depth()


def _read_server(url: str, located: Sequence[Located]) -> Mapping[Place, Depth | Exception]:
    """Read the depths of the queues and groups of one server, or return the error that concerns them all.

    A group that is missing is created where it is to begin.
    """
    places = [where.place for where in located]
    try:
        gateway = RedisGateway(url=impatient_url(url), retry_budget_seconds=0)
        try:
            found: dict[Place, Depth | Exception] = {**read_depths(gateway, places, retry=False)}
        finally:
            gateway.close()
        for where in located:
            if isinstance(found[where.place], GroupNotFoundError):
                found[where.place] = _read_missing(where)
        return found
    except Exception as error:  # noqa: BLE001  (the sensor logs it; the other servers must not suffer)
        return dict.fromkeys(places, error)


def _read_missing(where: Located) -> Depth | Exception:
    try:
        with where.open() as group:
            depth: Depth = group.depth()
            return depth
    except RedisMessageQueueError as error:
        return error
