"""The argument PLACE of the commands: a queue, a stream, a group of a stream or a queue of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sluicegate.cli.output import Column
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place, is_place_url

if TYPE_CHECKING:
    from sluicegate.cli.context import Cli
    from sluicegate.consumer import QueueConsumer
    from sluicegate.gateway import RedisGateway
    from sluicegate.jobs.queue import RedisJobQueue
    from sluicegate.streams.stream import RedisStreamQueue
    from sluicegate.survey.snapshots import PlaceState

__all__ = [
    "NEVER_USED",
    "PLACE_COLUMNS",
    "Kind",
    "Target",
    "Targets",
    "configured_places",
    "found_places",
    "grouped",
    "place_cells",
    "places_or_known",
    "read_states",
    "target_of",
]

Kind = Literal["queue", "stream", "group", "jobs"]


@dataclass(frozen=True, slots=True)
class Target:
    """A place that an argument names, and the Redis that it is on.

    Attributes:
        cli: the command that was called.
        place: the place.
        kind: what it is.
        url: the URL of its Redis, from the argument; None for the one of the settings.
    """

    cli: Cli
    place: Place
    kind: Kind
    url: str | None = None

    @property
    def gateway(self) -> RedisGateway:
        """Return the gateway to its Redis."""
        return self.cli.gateway(self.url)

    @property
    def redis_url(self) -> str:
        """Return the URL of its Redis, which may hold a password: pass it on and never print it."""
        return self.url or self.cli.settings.url

    def identity(self) -> dict[str, Any]:
        """Return what `--json` says about which place this is: `kind`, `name` and `group`."""
        return {"kind": self.kind, "name": self.place.name, "group": self.place.group}

    def open(self, **options: Any) -> Any:
        """Make the queue, stream, group or queue of jobs. It connects at its first command.

        Args:
            options: of what the place is; they come before those of the configuration file.
        """
        options = {"gateway": self.gateway, **self.configured(), **options}
        if self.kind == "jobs":
            from sluicegate.jobs.queue import RedisJobQueue

            return RedisJobQueue(self.place.name, **options)
        from sluicegate.opening import open_place

        return open_place(self.place, **options)

    def configured(self) -> dict[str, Any]:
        """Return the options that the configuration file has for this place."""
        name, group = self.place.name, self.place.group
        return dict(self.cli.settings.options.get(name if group is None else f"{name}/{group}", {}))

    def consumed(self) -> Target:
        """Return this place, if messages can be claimed from it.

        Raises:
            ConfigurationError: the place is a stream, whose groups consume.
        """
        if self.kind == "stream":
            raise ConfigurationError(f"{self} is consumed by its groups; add --group NAME")
        return self

    def consumer(self, **options: Any) -> QueueConsumer:
        """Make what messages can be claimed from: a queue, a group or a queue of jobs.

        Raises:
            ConfigurationError: the place is a stream, whose groups consume.
        """
        self.consumed()
        consumer: QueueConsumer = self.open(**options)
        return consumer

    def jobs(self, **options: Any) -> RedisJobQueue:
        """Make the queue of jobs.

        Raises:
            ConfigurationError: the place is a stream or a group.
        """
        if self.place.stream:
            raise ConfigurationError(f"{self} holds no jobs; name a queue of jobs")
        from sluicegate.jobs.queue import RedisJobQueue

        return RedisJobQueue(self.place.name, **{"gateway": self.gateway, **self.configured(), **options})

    def stream(self, **options: Any) -> RedisStreamQueue:
        """Make the stream.

        Raises:
            ConfigurationError: the place is no stream.
        """
        if self.kind != "stream":
            raise ConfigurationError(f"{self} is no stream; add --stream")
        stream: RedisStreamQueue = self.open(**options)
        return stream

    def __str__(self) -> str:
        return f"queue of jobs {self.place.name!r}" if self.kind == "jobs" else str(self.place)


class Targets(tuple[Target, ...]):
    """The places of a command that takes any number of them."""


def target_of(cli: Cli, text: str, *, stream: bool = False, group: str | None = None, jobs: bool = False) -> Target:
    """Return the place that an argument and its options name.

    Args:
        cli: the command that was called.
        text: a name, or a URL of a place such as `redis+sluicegate://host:6379/0?queue=orders`.
        stream: whether the name is that of a stream.
        group: the name of a group of that stream.
        jobs: whether the name is that of a queue of jobs.

    Raises:
        ConfigurationError: options that contradict each other, or a name or URL that no place has.
    """
    if jobs and (stream or group is not None):
        raise ConfigurationError(
            "--jobs names a queue of jobs, and --stream and --group name a stream; give one of them"
        )
    if is_place_url(text) and "://" in text:
        if stream or group is not None:
            raise ConfigurationError("a URL of a place says itself what it names; leave --stream and --group out")
        url, place = Place.parse_url(text)
        return Target(cli, place, _kind(place, jobs), url)
    if "://" in text:
        raise ConfigurationError(
            "PLACE is a name or the URL of a place, such as redis+sluicegate://host:6379/0?queue=orders; give the URL "
            "of a Redis as --url"
        )
    place = Place(text, stream=stream or group is not None, group=group)
    return Target(cli, place, _kind(place, jobs))


PLACE_COLUMNS = (Column("name", flexible=True, style="bold"), Column("kind", style="dim"))
"""The columns of a table in which `place_cells` stand."""


NEVER_USED = "nothing was ever published to {}; `sluicegate queues` lists what there is, and --stream names a stream"
"""The remark about a place that a name may have missed. It is no error: a queue begins with its first message."""


def place_cells(target: Target) -> list[str]:
    """Return what a table shows of a place: its name and kind."""
    name, group = target.place.name, target.place.group
    return [name if group is None else f"{name} / {group}", target.kind]


def places_or_known(cli: Cli, targets: Targets) -> Sequence[Target]:
    """Return the places of the arguments; without any, those of the configuration file, else all that SCAN finds."""
    return targets or configured_places(cli) or found_places(cli)


def grouped(targets: Iterable[Target]) -> list[tuple[RedisGateway, list[Target]]]:
    """Return the gateways that some places are on, each with its places."""
    by_gateway: dict[int, tuple[RedisGateway, list[Target]]] = {}
    for target in targets:
        gateway = target.gateway
        by_gateway.setdefault(id(gateway), (gateway, []))[1].append(target)
    return list(by_gateway.values())


def found_places(cli: Cli) -> Sequence[Target]:
    """Return all places that SCAN finds on the Redis of the settings."""
    from sluicegate.survey import find_places

    return [Target(cli, found.place, found.kind) for found in find_places(cli.gateway())]


def read_states(cli: Cli, targets: Targets) -> dict[Target, PlaceState]:
    """Return the state of each place, or the error that concerns it alone; without places, of all that are known."""
    from sluicegate.survey import read_snapshots

    found: dict[Target, PlaceState] = {}
    for gateway, some in grouped(places_or_known(cli, targets)):
        states = read_snapshots(gateway, [target.place for target in some])
        found.update({target: states[target.place] for target in some})
    return found


def configured_places(cli: Cli) -> Sequence[Target]:
    """Return the places that the configuration file lists."""
    settings = cli.settings
    named: list[tuple[Place, Kind]] = [(Place(name), "queue") for name in settings.queues]
    named += [(Place(name, stream=True), "stream") for name in settings.streams]
    for stream, groups in settings.groups.items():
        named += [(Place(stream, stream=True, group=group), "group") for group in groups]
    named += [(Place(name), "jobs") for name in settings.jobs]
    return [Target(cli, place, kind) for place, kind in named]


def _kind(place: Place, jobs: bool) -> Kind:
    if jobs:
        return "jobs"
    if not place.stream:
        return "queue"
    return "stream" if place.group is None else "group"
