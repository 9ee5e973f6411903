"""The last minutes of each place: what its charts and rates are drawn from."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sluicegate.web.shapes import Rates

__all__ = ["History", "Point"]

_RATE_SECONDS = 10.0
_MAX_POINTS = 600
_MAX_POINTS_IN_ALL = 300_000  # about 50 MB, however many places there are


@dataclass(frozen=True, slots=True)
class Point:
    """A place at one moment.

    Attributes:
        at: seconds since the epoch.
        ready: messages that a claim would get; of a stream, its messages.
        in_flight: messages in leases.
        dead: dead letters.
        oldest: age of the oldest ready message; None if none is ready.
        published: messages published so far.
        acked: messages acked so far.
    """

    at: float
    ready: int
    in_flight: int
    dead: int
    oldest: float | None
    published: int
    acked: int


class History:
    """Keeps the newest points of one place.

    Args:
        places: number of places that share the memory.
    """

    def __init__(self, places: int = 1) -> None:
        self._points: deque[Point] = deque(maxlen=max(60, min(_MAX_POINTS, _MAX_POINTS_IN_ALL // max(1, places))))

    def add(self, point: Point) -> None:
        """Append the newest point."""
        self._points.append(point)

    def ready(self, most: int) -> list[tuple[float, float]]:
        """Return the newest points as pairs of time and ready messages, the oldest first."""
        return [(round(point.at, 1), point.ready) for point in self._newest(most)]

    def chart(self, most: int = _MAX_POINTS) -> list[tuple[float, float, float, float, float | None]]:
        """Return the newest points for the chart of a place: time, ready, in flight, dead, oldest age."""
        return [(round(each.at, 1), each.ready, each.in_flight, each.dead, each.oldest) for each in self._newest(most)]

    def _newest(self, most: int) -> list[Point]:
        """Return the newest points, the oldest of them first."""
        points = list(self._points)  # at once: the sampler may add one meanwhile
        return points[max(0, len(points) - most) :]

    def rates(self) -> Rates:
        """Return how many messages per second were published and acked over the last ten seconds."""
        rates: Rates = {"published_per_second": 0.0, "acked_per_second": 0.0}
        if len(self._points) < 2:
            return rates
        last = self._points[-1]
        first = self._points[-2]
        for place in range(len(self._points) - 2, -1, -1):
            if last.at - self._points[place].at > _RATE_SECONDS:
                break
            first = self._points[place]
        seconds = last.at - first.at
        if seconds > 0:  # the totals of a queue that was deleted begin again at 0
            rates["published_per_second"] = round(max(0, last.published - first.published) / seconds, 2)
            rates["acked_per_second"] = round(max(0, last.acked - first.acked) / seconds, 2)
        return rates
