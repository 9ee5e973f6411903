"""Reads the state of queues, streams and groups from Redis at every scrape."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from sluicegate import checks
from sluicegate.clock import elapsed_clock
from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.gateway import RedisGateway
from sluicegate.metrics.catalogue import (
    CONSUMER_METRICS,
    GROUP_METRICS,
    PLACE_LABELS,
    SCRAPE_METRICS,
    STREAM_METRICS,
    Declared,
)
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, PlaceDirectory, StreamSnapshot, read_snapshots

__all__ = ["QueueCollector"]

_log = logging.getLogger("sluicegate")
_KINDS = ("queue", "jobs", "stream", "group")
State: TypeAlias = Snapshot | StreamSnapshot | RedisMessageQueueError


class QueueCollector(Collector):
    """A collector of prometheus_client for queues, queues of jobs, streams and groups.

    Register it in one process, such as the exporter's: what it reads is in Redis, so it counts the work of all
    processes. Making and registering one does no I/O. A scrape is one write per Redis server, and one command per
    place. It never fails: a server that cannot be reached and a place that cannot be read are metrics of their own.

    Args:
        url: of the Redis, as for a queue.
        gateway: instead, a gateway, which stays the caller's to close.
        places: what to read: names of queues, places, or what `find_places` returned; None for all that a search finds.
        refresh_seconds: how often that search is repeated, in the background.
        max_places: most places to read; the rest is counted in `sluicegate_places_left_out`.

    Raises:
        ConfigurationError: not exactly one of `url` and `gateway`, or an argument that cannot work.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        gateway: RedisGateway | None = None,
        places: Iterable[str | Place | FoundPlace] | None = None,
        refresh_seconds: float = 60.0,
        max_places: int = 2000,
    ) -> None:
        if (url is None) == (gateway is None):
            raise ConfigurationError("give exactly one of url and gateway")
        checks.count("max_places", max_places)
        self._owns_gateway = gateway is None
        self._gateway = gateway or RedisGateway(url=url)
        self._max_places = max_places
        self._configured = None if places is None else list(dict.fromkeys(map(_found, places)))
        self._directory = PlaceDirectory(self._gateway, refresh_seconds)

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that a registry does not read Redis to learn the names."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Read every place, and yield the metrics."""
        begun = elapsed_clock()
        scrape = _Scrape()
        try:
            places = self._places()
            read, left_out = places[: self._max_places], len(places[self._max_places :])
            states = read_snapshots(self._gateway, [found.place for found in read], retry=False)
            is_up = True
        except RedisMessageQueueError as error:
            _log.warning("the metrics of %s could not be read: %s", self._gateway.server, error)
            read, left_out, states, is_up = [], 0, {}, False
        for place, state in states.items():
            scrape.add(place, state)
        scrape.gauge("sluicegate_up", float(is_up), self._gateway.server)
        if is_up:
            for kind in _KINDS:
                scrape.gauge("sluicegate_places", sum(found.kind == kind for found in read), kind)
            scrape.gauge("sluicegate_places_left_out", left_out)
        if self._configured is None:
            found_some = self._directory.found_at is not None and self._directory.error is None
            scrape.gauge("sluicegate_discovery_up", float(found_some))
        scrape.gauge("sluicegate_scrape_duration_seconds", elapsed_clock() - begun)
        yield from scrape.families()

    def close(self) -> None:
        """Close the connections that this collector made."""
        self._directory.close()
        if self._owns_gateway:
            self._gateway.close()

    def _places(self) -> Sequence[FoundPlace]:
        return self._directory.places() if self._configured is None else self._configured


class _Scrape:
    """The families of one scrape, each with its samples."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        of_places: tuple[Declared, ...] = (*CONSUMER_METRICS, *STREAM_METRICS, *GROUP_METRICS)
        declared = [(one, (*PLACE_LABELS, *one.labels)) for one in of_places]
        declared += [(one, one.labels) for one in SCRAPE_METRICS]
        for one, labels in declared:
            if one.name not in self._families:
                make = GaugeMetricFamily if one.kind == "gauge" else CounterMetricFamily
                self._families[one.name] = make(one.name, one.help, labels=labels)

    def add(self, place: Place, state: State) -> None:
        """Add the samples of a place."""
        labels = labels_of(place)
        match state:
            case Snapshot():
                for metric in CONSUMER_METRICS:
                    more = (metric.value,) if metric.labels else ()
                    self._add(metric.name, (*labels, *more), metric.read(state))
            case StreamSnapshot(info):
                for of_stream in STREAM_METRICS:
                    self._add(of_stream.name, labels, of_stream.read(info))
                for group in info.groups:
                    if not group.is_temporary:
                        for of_group in GROUP_METRICS:
                            self._add(of_group.name, ("", place.name, group.name), of_group.read(group))
            case RedisMessageQueueError():
                self._add("sluicegate_place_error", (*labels, type(state).__name__), 1.0)

    def gauge(self, name: str, value: float, *labels: str) -> None:
        """Add a sample about the scrape itself."""
        self._add(name, labels, value)

    def families(self) -> Iterator[Family]:
        """Yield the families that have samples."""
        return (family for family in self._families.values() if family.samples)

    def _add(self, name: str, labels: Sequence[str], value: float | None) -> None:
        if value is not None:
            self._families[name].add_metric(list(labels), value)  # type: ignore[attr-defined]  # both kinds have it


def labels_of(place: Place) -> tuple[str, str, str]:
    """Return the values of `PLACE_LABELS`."""
    return ("", place.name, place.group or "") if place.stream else (place.name, "", "")


def _found(place: str | Place | FoundPlace) -> FoundPlace:
    if isinstance(place, FoundPlace):
        return place
    if isinstance(place, str):
        place = Place(place)
    return FoundPlace(place, "queue" if not place.stream else "stream" if place.group is None else "group")
