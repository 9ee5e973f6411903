"""What the routes of one page share: its Redis, its sampler, who may act, and the places that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request

from sluicegate.clock import elapsed_clock
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import RedisGateway
from sluicegate.jobs import RedisJobQueue
from sluicegate.opening import open_place
from sluicegate.place import Place
from sluicegate.survey import FoundPlace
from sluicegate.web.guard import Guard
from sluicegate.web.masking import Masks
from sluicegate.web.sampling import Places, Sampler

__all__ = ["FixedPlaces", "Here", "Named", "Page", "found_place", "the_page"]


class FixedPlaces:
    """The places that the page was given; it looks for no others, and shows no others."""

    def __init__(self, places: Sequence[FoundPlace | Place]) -> None:
        self._places = [each if isinstance(each, FoundPlace) else FoundPlace(each, _kind(each)) for each in places]
        self.found_at: float | None = elapsed_clock()

    def places(self) -> Sequence[FoundPlace]:
        """Return them as given."""
        return self._places


@dataclass(frozen=True)
class Page:
    """One page: `create_app` makes it, and every route gets it.

    Attributes:
        title: in the head of the page.
        gateway: how Redis is reached.
        places: which places there are.
        sampler: what reads them.
        masks: what of payloads and headers must not be shown.
        read_only: whether every write is refused.
        allowed: the only places that may be asked for; None for any.
    """

    title: str
    gateway: RedisGateway
    places: Places
    sampler: Sampler
    masks: Masks
    read_only: bool
    allowed: frozenset[Place] | None

    def open(self, found: FoundPlace, **options: Any) -> Any:
        """Make the object of a place, on the page's connections. It does no I/O."""
        if found.kind == "jobs":
            return RedisJobQueue(found.place.name, gateway=self.gateway, **options)
        return open_place(found.place, gateway=self.gateway, **options)


@dataclass(frozen=True)
class Named:
    """A place that a request names, and the page that it is on."""

    page: Page
    found: FoundPlace

    @property
    def place(self) -> Place:
        """Return the place itself."""
        return self.found.place

    def open(self, **options: Any) -> Any:
        """Make its object."""
        return self.page.open(self.found, **options)

    def needs(self, *kinds: str) -> None:
        """Refuse a place for which this makes no sense.

        Raises:
            ConfigurationError: it is of another kind.
        """
        if self.found.kind not in kinds:
            raise ConfigurationError(f"{self.found.place} is of kind {self.found.kind!r}; this needs {_any_of(kinds)}")


def the_page(request: Request) -> Page:
    """Return the page that a request is for."""
    page: Page = request.app.state.page
    return page


Here = Annotated[Page, Depends(the_page)]


def found_place(
    here: Here,
    queue: Annotated[str | None, Query(max_length=1000)] = None,
    stream: Annotated[str | None, Query(max_length=1000)] = None,
    group: Annotated[str | None, Query(max_length=1000)] = None,
    jobs: Annotated[str | None, Query(max_length=1000)] = None,
) -> Named:
    """Return the place that the query of a request names, as in the URLs of places; `jobs` is one more.

    Raises:
        ConfigurationError: it names none, several, or one that this page does not show.
    """
    if jobs is not None:
        if queue is not None or stream is not None or group is not None:
            raise ConfigurationError("give exactly one of queue, stream and jobs")
        found = FoundPlace(Place(jobs), "jobs")
    else:
        place = Place.named(queue, stream=stream, group=group)
        found = FoundPlace(place, _kind(place))
    if here.allowed is not None and found.place not in here.allowed:
        raise ConfigurationError(f"this page does not show {found.place}")
    return Named(here, found)


def guard_of(request: Request) -> Guard:
    """Return what stands before the application of a request."""
    guard: Guard = request.app.state.guard
    return guard


def _kind(place: Place) -> Any:
    if not place.stream:
        return "queue"
    return "stream" if place.group is None else "group"


def _any_of(kinds: Sequence[str]) -> str:
    return " or ".join(repr(kind) for kind in kinds)
