"""Looks at Redis, at places and at workers once, and reports what is not as it should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

from sluicegate.clock import elapsed_clock
from sluicegate.errors import RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.health.limits import HealthLimits
from sluicegate.health.report import HealthCheck, HealthReport
from sluicegate.place import Place
from sluicegate.report import Depth
from sluicegate.survey import FoundPlace, Snapshot, StreamSnapshot, read_snapshots

__all__ = ["Beating", "check_health"]

Measure: TypeAlias = tuple[str, str, float | None, float | None]  # name, words, value, limit
_NO_LIMITS = HealthLimits()


class Beating(Protocol):
    """A worker of this process, of threads or asyncio."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def silent_seconds(self) -> float | None:
        """Return how long ago its loop last ran; None if it does not run."""


def check_health(
    gateway: RedisGateway,
    places: Iterable[Place | FoundPlace] = (),
    *,
    limits: HealthLimits = _NO_LIMITS,
    limits_of: Mapping[Place, HealthLimits] | None = None,
    workers: Iterable[Beating] = (),
) -> HealthReport:
    """Check that every Redis server answers, that places are within their limits, and that workers run.

    It costs a PING per server and one write per server for all places, and retries nothing, so that a probe gets its
    answer within seconds. It never raises because of what it finds.

    Args:
        gateway: how Redis is reached.
        places: what to look at; none: only Redis and the workers.
        limits: of every place, and of the workers.
        limits_of: instead, the limits of single places.
        workers: of this process, whose loops must have run lately.
    """
    checks = [_redis(gateway)]
    if checks[0].is_ok:
        checks += _places(gateway, places, limits, limits_of or {})
    checks += [_worker(worker, limits.max_worker_silence_seconds) for worker in workers]
    return HealthReport(checks)


def _redis(gateway: RedisGateway) -> HealthCheck:
    begun = elapsed_clock()
    try:
        replies = gateway.ask([("PING",)])
    except RedisMessageQueueError as error:
        return HealthCheck("redis", False, str(error))
    refused = [(server, reply) for server, (reply,) in replies.items() if isinstance(reply, Exception)]
    if refused:
        server, reply = refused[0]
        return HealthCheck("redis", False, f"{server} answers {reply}")
    seconds = elapsed_clock() - begun
    return HealthCheck("redis", True, f"{', '.join(replies)} answered in {seconds * 1000:.0f} ms")


def _places(
    gateway: RedisGateway,
    places: Iterable[Place | FoundPlace],
    limits: HealthLimits,
    limits_of: Mapping[Place, HealthLimits],
) -> Iterator[HealthCheck]:
    wanted = [each.place if isinstance(each, FoundPlace) else each for each in places]
    try:
        found = read_snapshots(gateway, wanted, retry=False)
    except RedisMessageQueueError as error:
        yield HealthCheck("redis", False, str(error))
        return
    for place in wanted:
        state = found[place]
        if isinstance(state, RedisMessageQueueError):
            yield HealthCheck("place", False, str(state), str(place))
            continue
        yield HealthCheck("place", True, "it can be read", str(place))
        yield from _limited(place, state, limits_of.get(place, limits))


def _limited(place: Place, state: Snapshot | StreamSnapshot, limits: HealthLimits) -> Iterator[HealthCheck]:
    measures = _of_stream(state, limits) if isinstance(state, StreamSnapshot) else _of(place, state.depth, limits)
    for name, words, value, limit in measures:
        if limit is None:
            continue
        is_ok = value is None or value <= limit
        detail = f"{words}: {'none' if value is None else f'{value:g}'}, at most {limit:g}"
        yield HealthCheck(name, is_ok, detail, str(place), value, limit)


def _of(place: Place, depth: Depth, limits: HealthLimits) -> Iterator[Measure]:
    yield "ready", "messages that are ready", depth.ready, limits.max_ready
    age = depth.oldest_ready_age_seconds
    yield "oldest_ready", "seconds that the oldest message has been ready", age, limits.max_oldest_ready_seconds
    yield "in_flight", "messages in flight", depth.in_flight, limits.max_in_flight
    yield "dead", "dead letters", depth.dead, limits.max_dead
    if place.group is not None:
        yield "lag", "messages that the group has not been delivered", depth.pending, limits.max_lag


def _of_stream(state: StreamSnapshot, limits: HealthLimits) -> Iterator[Measure]:
    """Return how far the groups of a stream are behind; the server may not know it of one."""
    lags = [group.lag for group in state.info.groups if group.lag is not None and not group.is_temporary]
    yield "lag", "messages that the slowest group has not been delivered", max(lags, default=None), limits.max_lag


def _worker(worker: Beating, most_seconds: float) -> HealthCheck:
    silent = worker.silent_seconds
    if silent is None:
        return HealthCheck("worker", False, "it does not run", worker.name)
    words = f"its loop last ran {silent:.1f} s ago"
    return HealthCheck("worker", silent <= most_seconds, words, worker.name, silent, most_seconds)
