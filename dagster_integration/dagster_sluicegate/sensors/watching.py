"""A sensor that watches batches or jobs until they end: their ids, the cursor that remembers them, and the runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import dagster as dg

from dagster_sluicegate.depths import Located
from dagster_sluicegate.places import label_of, names_of, shown
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.runs import QUEUE_ID_TAG, SENSOR_TAG
from sluicegate.core.keys import encode_name
from sluicegate.errors import ConfigurationError

__all__ = ["Ending", "FromAsset", "FromFunction", "RunConfigOf", "Source", "WatchCursor", "WatchSensor"]

RunConfigOf = Callable[[dg.SensorEvaluationContext, Any], dg.RunConfig | Mapping[str, Any]]

_VERSION = 1
_MOST_EXPLAINED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How far something that is watched has come.

    Attributes:
        exists: whether Redis has a record of it.
        end: the text that stands for its end, which differs from that of an earlier end; "" before that.
        held: why its end requests no run; "" if it does.
        may_reopen: whether it can continue after its end.
        words: how far it has come, for people.
        tags: of the run that its end requests.
        status: what a `run_config_fn` gets.
    """

    exists: bool
    end: str = ""
    held: str = ""
    may_reopen: bool = False
    words: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    status: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchCursor:
    """What one tick leaves for the next one.

    Attributes:
        watched: ids of what is watched, each with the partition of its asset or None; the oldest first.
        requested: per id of what ended, the end for which a run was requested.
        seen: the last materialization that was read; None before the first one.
    """

    watched: Mapping[str, str | None] = field(default_factory=dict)
    requested: Mapping[str, str] = field(default_factory=dict)
    seen: int | None = None

    @classmethod
    def of(cls, context: dg.SensorEvaluationContext) -> WatchCursor:
        """Return the cursor of the last tick; an empty one, with a warning, if it cannot be read."""
        if not context.cursor:
            return cls()
        try:
            found = json.loads(context.cursor)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']!r}")
            return cls(watched=dict(found["watched"]), requested=dict(found["requested"]), seen=found["seen"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            context.log.warning(
                f"The cursor of this sensor cannot be read ({type(error).__name__}: {error}); it starts anew. Runs "
                "that it requests again have the same run keys, so Dagster starts none of them twice."
            )
            return cls()

    def to_text(self) -> str:
        """Return the text for the UI and the next tick."""
        shown = {"watched": self.watched, "requested": self.requested, "seen": self.seen, "version": _VERSION}
        return json.dumps(shown, ensure_ascii=False)


class Source(Protocol):
    """Where the ids of what is watched come from."""

    @property
    def is_final(self) -> bool:
        """Return whether what it names exists by then, so that a record that is missing was removed."""

    def watched(self, context: dg.SensorEvaluationContext, cursor: WatchCursor, most: int) -> WatchCursor:
        """Return the cursor with what this tick looks at: what is watched already, and what is new.

        Args:
            context: of the tick.
            cursor: of the last one.
            most: how many ids a tick looks at.
        """

    def still_watches(self, *, may_reopen: bool) -> bool:
        """Return whether something that ended is looked at by the next tick too."""


@dataclass(frozen=True, slots=True)
class FromAsset:
    """Ids that an asset records in its materializations.

    The event log keeps what a tick has no room for, so that nothing is left out.

    Attributes:
        asset_key: of the asset.
        metadata: the name of the entry that holds the id.
        label: of the queue; materializations about another one do not count.
    """

    asset_key: dg.AssetKey
    metadata: str
    label: str
    is_final: bool = True

    def watched(self, context: dg.SensorEvaluationContext, cursor: WatchCursor, most: int) -> WatchCursor:
        room = most - len(cursor.watched)
        if room <= 0:
            context.log.warning(
                f"{len(cursor.watched)} are watched, the most of a tick; further ones wait until some of these end."
            )
            return cursor
        records = self._records(context.instance, cursor.seen, room)
        found = dict(cursor.watched)
        for record in records:
            made = record.asset_materialization
            if made is None:
                continue
            values = {name: value.value for name, value in made.metadata.items()}
            name = self.name_of(record, values.get(self.metadata))
            if name is not None and values.get("sluicegate/queue", self.label) == self.label:
                found[name] = made.partition
        seen = max((record.storage_id for record in records), default=cursor.seen)
        return WatchCursor(watched=found, requested=cursor.requested, seen=seen)

    def name_of(self, record: Any, value: object) -> str | None:
        """Return the id that a record of the event log stands for; None for none."""
        return value if isinstance(value, str) else None

    def still_watches(self, *, may_reopen: bool) -> bool:
        return may_reopen

    def _records(self, instance: dg.DagsterInstance, seen: int | None, room: int) -> list[Any]:
        """Return the next materializations, the oldest first; without a cursor the newest ones."""
        if seen is None:
            return list(reversed(instance.fetch_materializations(self.asset_key, limit=room).records))
        later = dg.AssetRecordsFilter(asset_key=self.asset_key, after_storage_id=seen)
        return list(instance.fetch_materializations(later, limit=room, ascending=True).records)


@dataclass(frozen=True, slots=True)
class FromFunction:
    """Ids that are given, or that a function of the context returns at each tick.

    Attributes:
        option: its name in errors.
        ids: the ids, or the function.
    """

    option: str
    ids: Iterable[str] | Callable[[dg.SensorEvaluationContext], Iterable[str]]
    is_final: bool = False

    def watched(self, context: dg.SensorEvaluationContext, cursor: WatchCursor, most: int) -> WatchCursor:
        given = list(dict.fromkeys(self.ids(context) if callable(self.ids) else self.ids))
        for name in given:
            if not isinstance(name, str):
                raise ConfigurationError(f"{self.option} must hold texts, not a {type(name).__name__}")
        requested = {name: end for name, end in cursor.requested.items() if name in set(given)}
        # Those without a run first, and then those that the last tick did not look at.
        order = sorted(given, key=lambda name: (name in requested, name in cursor.watched))
        if len(order) > most:
            context.log.warning(
                f"{self.option} names {len(order)}, and a tick looks at {most} at most; the others follow."
            )
        return WatchCursor(watched=dict.fromkeys(order[:most]), requested=requested)

    def still_watches(self, *, may_reopen: bool) -> bool:
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchSensor:
    """A sensor that requests a run for each end of what it watches.

    Attributes:
        name: of the sensor.
        kind: of what is watched, with which run keys begin: `batch` or `jobs`.
        ref: the queue.
        source_of: makes the source of ids of one tick, given the label of the queue.
        read: reads how far each id of a source has come, without a write.
        most: how many ids a tick looks at.
        same_partition: whether a run is about the partition of the materialization.
        run_config_fn: makes the run's config of the context and the status.
        run_tags: of each run.
    """

    name: str
    kind: str
    ref: QueueRef
    source_of: Callable[[str], Source]
    read: Callable[[dg.SensorEvaluationContext, Located, Source, list[str]], Mapping[str, Ending]]
    most: int
    same_partition: bool
    run_config_fn: RunConfigOf | None
    run_tags: Mapping[str, str]

    def look(self, context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SensorResult:
        """Evaluate one tick."""
        where = self.ref.locate(resource)
        if where.place.stream:
            raise ConfigurationError(f"sensor {self.name!r}: {where.place} has no batches and no jobs; name a queue")
        source = self.source_of(label_of(where.place))
        cursor = source.watched(context, WatchCursor.of(context), self.most)
        endings = self.read(context, where, source, list(cursor.watched)) if cursor.watched else {}
        requests: list[dg.RunRequest] = []
        watched: dict[str, str | None] = {}
        # A tick that has no room for all of them remembers the others.
        requested = {name: end for name, end in cursor.requested.items() if name not in cursor.watched}
        waiting: list[str] = []
        for name, partition in cursor.watched.items():
            ending = endings[name]
            if not ending.exists and source.is_final:
                context.log.error(
                    f"{self.kind} {name!r} is no longer recorded in {where.place}, so no run is requested for it. It "
                    "ended longer ago than records are kept; run the target by hand if it has not run."
                )
                continue
            if not ending.end or ending.held:
                waiting.append(f"{name!r} {ending.held or ending.words}")
            elif cursor.requested.get(name) != ending.end:
                requests.append(self._request(context, where, name, partition, ending, resource.page_tags(where.place)))
            if not ending.end or ending.held or source.still_watches(may_reopen=ending.may_reopen):
                watched[name] = partition
            if ending.end and not ending.held and name in watched:
                requested[name] = ending.end
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(self._why_skipped(where, watched, waiting)),
            cursor=WatchCursor(watched=watched, requested=requested, seen=cursor.seen).to_text(),
        )

    def _request(
        self,
        context: dg.SensorEvaluationContext,
        where: Located,
        name: str,
        partition: str | None,
        ending: Ending,
        page: Mapping[str, str],
    ) -> dg.RunRequest:
        options: dict[str, Any] = {"partition_key": partition} if self.same_partition else {}
        if self.run_config_fn is not None:
            options["run_config"] = self.run_config_fn(context, ending.status)
        # The gates of the queue have the plain id, so that they do not count this run.
        own = {QUEUE_ID_TAG: f"{where.queue_id}/{self.kind}", SENSOR_TAG: self.name}
        return dg.RunRequest(
            run_key=f"{self.kind}:{label_of(where.place)}:{encode_name(name)}:{ending.end}",
            tags={**names_of(where.place), **page, **own, **ending.tags, **self.run_tags},
            **options,
        )

    def _why_skipped(self, where: Located, watched: Mapping[str, object], waiting: list[str]) -> str:
        if not waiting:
            return f"No {self.kind} of {shown(where.place)} is open" + (
                f"; a run was requested for each of {len(watched)}." if watched else "."
            )
        more = f"; and {len(waiting) - _MOST_EXPLAINED} more" if len(waiting) > _MOST_EXPLAINED else ""
        return f"{len(waiting)} open in {shown(where.place)}: {'; '.join(waiting[:_MOST_EXPLAINED])}{more}."
