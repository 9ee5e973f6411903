"""One thread reads every place for all viewers: each second while somebody looks, and rarely otherwise."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from sluicegate.clock import elapsed_clock
from sluicegate.errors import RedisMessageQueueError, RedisUnavailableError
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, read_snapshots
from sluicegate.web.answers import encoded
from sluicegate.web.changes import Changes
from sluicegate.web.history import History
from sluicegate.web.refusals import described
from sluicegate.web.rows import SPARKLINE_POINTS, Gates, Seen, place_shape, point_of, row_of
from sluicegate.web.shapes import Overview, PlaceShape, Row

__all__ = ["Places", "Sample", "Sampler"]

_FIRST_WAIT_SECONDS = 10.0
_log = logging.getLogger("sluicegate")


class Places(Protocol):
    """Says which places there are; `PlaceDirectory` finds them."""

    @property
    def found_at(self) -> float | None:
        """Return when they were found, by `elapsed_clock`; None before that."""

    def places(self) -> Sequence[FoundPlace]:
        """Return them, sorted."""


@dataclass(frozen=True)
class Sample:
    """Every place at one moment.

    Attributes:
        number: grows with every sample.
        at: seconds since the epoch.
        refreshed_at: when the list of places was made.
        found: the places.
        seen: what Redis said of each.
        histories: the last minutes of each.
        gates: the gates of the page.
        error: why Redis could not be read; `seen` is then what was read last.
        changes: in which sample each row has last changed.
    """

    number: int
    at: float
    refreshed_at: float
    found: Sequence[FoundPlace]
    seen: Mapping[Place, Seen]
    histories: Mapping[Place, History] = field(repr=False)
    gates: Gates
    error: RedisMessageQueueError | None = None
    changes: Changes = field(default_factory=Changes, repr=False)
    _news: dict[int, bytes] = field(default_factory=dict, init=False, repr=False)

    def overview(self) -> Overview:
        """Return the overview."""
        return self._overview(list(self.rows().values()))

    def rows(self, only: Set[Place] | None = None, *, points: int = SPARKLINE_POINTS) -> dict[Place, Row]:
        """Return the rows of places, in the order of the overview."""
        return {
            each.place: row_of(each, self.seen[each.place], self.histories[each.place], self.gates, points=points)
            for each in self.found
            if each.place in self.seen and (only is None or each.place in only)
        }

    def news_json(self, since: int) -> bytes:
        """Return as JSON what a viewer needs who has the sample of a number: all of it where much is different.

        Viewers have mostly the same number, so that one answer serves them.
        """
        if since < max(1, self.changes.since):
            return self.overview_json
        if (kept := self._news.get(since)) is not None:
            return kept
        rows = list(self.rows(self.changes.places(since), points=1).values())
        for row in rows:
            del row["stats"]  # the overview does not show them
        news = self._news[since] = encoded({**self._overview(rows), "since": since})
        return news

    @cached_property
    def moment_json(self) -> bytes:
        """Return when this was read, and why not, for a viewer who looks at one place."""
        return encoded({**self._overview([]), "since": self.number})

    def _overview(self, rows: list[Row]) -> Overview:
        overview: Overview = {"at": self.at, "refreshed_at": self.refreshed_at, "places": rows}
        if self.error is not None:
            said = described(self.error)
            overview["error"] = {"type": said["type"], "message": said["message"]}
        return overview

    @cached_property
    def overview_json(self) -> bytes:
        """Return the overview as JSON, made once for all viewers."""
        return encoded(self.overview())

    def place(self, found: FoundPlace, *, whole: bool = True) -> PlaceShape | None:
        """Return what the page of one place shows, if it is not whole without its history; None if it was not read."""
        place = found.place
        if place not in self.seen:
            return None
        return place_shape(found, self.seen[place], self.histories[place], self.gates, self.at, whole=whole)


class Sampler:
    """Reads all places in one write per server, keeps their last minutes, and wakes whoever waits for a new sample.

    The thread starts with the first viewer, and again in a forked child.

    Args:
        gateway: how Redis is reached; no sample is retried.
        places: which places there are.
        gates: the gates of the page.
        interval_seconds: time between samples while somebody looks.
        idle_seconds: the same while nobody does.
        viewer_seconds: how long after a request somebody still counts as looking.
        clock: seconds since the epoch; injected by tests.
    """

    def __init__(
        self,
        gateway: RedisGateway,
        places: Places,
        gates: Gates,
        *,
        interval_seconds: float = 1.0,
        idle_seconds: float = 15.0,
        viewer_seconds: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._gateway = gateway
        self._places = places
        self._gates = gates
        self._interval_seconds = interval_seconds
        self._idle_seconds = idle_seconds
        self._viewer_seconds = viewer_seconds
        self._clock = clock
        self._histories: dict[Place, History] = {}
        self._latest: Sample | None = None
        self._failure: RedisMessageQueueError | None = None
        self._looked_at = float("-inf")
        self._wakeups: set[Callable[[], None]] = set()
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False

    # ------------------------------------------------------------------ for viewers

    def look(self) -> Sample:
        """Return the newest sample, for somebody who looks; the first one waits until Redis has answered.

        Raises:
            RedisMessageQueueError: Redis has never been read yet, and cannot be.
        """
        was_idle = not self._is_watched()
        self._looked_at = time.monotonic()
        latest = self._latest
        if latest is None or self._thread is None or self._pid != os.getpid():
            self._start()
        elif was_idle:
            self._wake.set()
        if latest is not None and not (was_idle and self._clock() - latest.at > 2 * self._interval_seconds):
            return latest
        return self._next(latest.number if latest else 0, latest)

    def subscribe(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        """Have a function called after every sample; return a function that ends this."""
        with self._changed:
            self._wakeups.add(wakeup)
        self._looked_at = time.monotonic()
        self._start()
        return lambda: self._wakeups.discard(wakeup)

    @property
    def latest(self) -> Sample | None:
        """Return the newest sample without looking; None before the first."""
        return self._latest

    def _next(self, number: int, instead: Sample | None) -> Sample:
        """Wait for a sample with a greater number, or for the failure to make one."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or (self._latest is not None and self._latest.number > number),
                _FIRST_WAIT_SECONDS,
            )
            latest, failure = self._latest, self._failure
        if latest is not None:
            return latest
        if instead is not None:
            return instead
        raise failure or RedisUnavailableError(f"{self._gateway.server} has not answered yet; try again in a moment")

    # ------------------------------------------------------------------ the loop

    def run_once(self) -> Sample | None:
        """Read every place once; return the sample, or None when Redis has never answered."""
        at, error = self._clock(), None
        found: Sequence[FoundPlace] = ()
        seen: Mapping[Place, Seen] = {}
        try:
            found = self._places.places()
            seen = read_snapshots(self._gateway, [each.place for each in found], retry=False)
        except RedisMessageQueueError as failure:
            error = failure
        with self._changed:
            before, self._failure = self._latest, error
            number = 1 if before is None else before.number + 1
            if error is None:
                self._keep(found, seen, at)
                refreshed_at = at - (elapsed_clock() - (self._places.found_at or elapsed_clock()))
                made = Sample(number, at, refreshed_at, found, seen, dict(self._histories), self._gates)
                self._latest = self._compared(made, before)
            elif before is not None:
                self._latest = Sample(
                    number,
                    at,
                    before.refreshed_at,
                    before.found,
                    before.seen,
                    before.histories,
                    self._gates,
                    error,
                    before.changes,
                )
            latest, wakeups = self._latest, list(self._wakeups)
            self._changed.notify_all()
        if wakeups and latest is not None:
            latest.news_json(latest.number - 1)  # made here once, and not by each viewer who wakes up
        for wakeup in wakeups:
            wakeup()
        return latest

    @staticmethod
    def _compared(sample: Sample, before: Sample | None) -> Sample:
        """Find what has changed, for viewers who have the sample before."""
        known = Changes() if before is None else before.changes
        return replace(sample, changes=known.after(sample.number, sample.at, sample.rows(points=0)))

    def _keep(self, found: Sequence[FoundPlace], seen: Mapping[Place, Seen], at: float) -> None:
        """Add a point to each place's history, and forget the places that are gone."""
        places = {each.place for each in found}
        for gone in self._histories.keys() - places:
            del self._histories[gone]
        for place in places:
            history = self._histories.get(place)
            if history is None:
                history = self._histories[place] = History(len(places))
            reading = seen.get(place)
            if reading is not None and not isinstance(reading, RedisMessageQueueError):
                history.add(point_of(reading, at))

    def _is_watched(self) -> bool:
        return bool(self._wakeups) or time.monotonic() - self._looked_at < self._viewer_seconds

    def _start(self) -> None:
        with self._changed:
            if self._closed or (self._thread is not None and self._thread.is_alive() and self._pid == os.getpid()):
                return
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._run, name="sluicegate-page", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            began = time.monotonic()
            self._wake.clear()
            try:
                self.run_once()
            except Exception:  # noqa: BLE001  (the page must survive whatever one sample meets)
                _log.exception("a sample of the page failed")
            took = time.monotonic() - began
            # Reading takes a third of the time at most, however many places there are.
            pause = self._interval_seconds if self._is_watched() else self._idle_seconds
            self._wake.wait(max(pause - took, 2 * took))

    def close(self) -> None:
        """Stop reading; the thread ends with its current sample."""
        self._closed = True
        self._wake.set()
