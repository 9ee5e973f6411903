"""A sensor that reports a queue as the data version of its asset, and the rule that makes such a version."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_sluicegate.queue_assets.evaluation import QueueCheck, new_evaluations, queue_checks
from dagster_sluicegate.queue_refs import QUEUE_ID, QueueAsset, QueueLook, QueueRef, asset_key_of
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.decision import describe
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS
from sluicegate import Depth
from sluicegate import checks as options
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate

__all__ = [
    "DEFAULT_ATTEMPT_DELAY_SECONDS",
    "QueueVersion",
    "VersionRule",
    "build_queue_observation_sensor",
    "observed_version",
]

DEFAULT_ATTEMPT_DELAY_SECONDS = 60

_DATA_VERSION_TAG = "dagster/data_version"
_SINCE = "sluicegate/version_since"
_VERSION = re.compile(r"(\d+):(\d+)")
_MOST_READ = 20  # observations of others that may lie above the newest one of ours


def build_queue_observation_sensor(
    *,
    name: str,
    queue_asset: QueueAsset,
    min_ready: int | None = None,
    max_age_seconds: float | None = None,
    attempt_delay_seconds: float = DEFAULT_ATTEMPT_DELAY_SECONDS,
    checks: Sequence[dg.AssetChecksDefinition] = (),
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that observes a queue as an asset, so that declarative automation reacts to its messages.

    It only reads the queue, starts no run, and reports an `AssetObservation` of `queue_asset` when the data version
    changes. The version is `generation:attempt`. The generation is the queue's count of messages ever claimed. While
    the gate is open, a generation that was not observed yet is reported at once, and then one further attempt every
    `attempt_delay_seconds` until a consumer claims. Declarative automation ignores an update that it finds together
    with a materialization of the downstream asset itself, or right after it requested that asset; the next attempt
    repeats it. While the gate is closed or the queue is paused, the sensor reports nothing.

    The newest observation in Dagster's event log is all that is remembered, so that a daemon that crashes repeats
    nothing.

    To drain the queue itself, prefer `build_queue_depth_sensor`: it requests one run per backlog and pauses after runs
    that fail, which declarative automation does not.

    Args:
        name: of the sensor.
        queue_asset: the asset of `build_queue_source_asset`, at which Dagster's UI then shows the sensor, or its key.
            Observations of an external `AssetSpec` would trigger nothing.
        min_ready: open when so many messages are ready.
        max_age_seconds: open when the oldest ready message has been ready for so long, above 0. Give this or
            `min_ready`, or both: either opens.
        attempt_delay_seconds: pause between two attempts while no consumer claims; default 60.
        checks: of this queue, evaluated from the same look and reported when they change, also while the gate is
            closed; see `build_queue_check_sensor`.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.
        minimum_interval_seconds: between two looks; default 30. Dagster's daemon looks at most every 5 s.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text; default: the conditions that open the gate.
        tags: of the sensor.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import (
                RedisQueueResource,
                build_queue_observation_sensor,
                build_queue_source_asset,
            )

            orders_queue = build_queue_source_asset(spec="orders_queue")


            @dg.asset(deps=[orders_queue], automation_condition=dg.AutomationCondition.eager())
            def backlog_report(queue: RedisQueueResource) -> dg.MaterializeResult:
                return dg.MaterializeResult(metadata={"ready": queue.get_depth().ready})


            defs = dg.Definitions(
                assets=[orders_queue, backlog_report],
                sensors=[
                    build_queue_observation_sensor(
                        name="orders_observed", queue_asset=orders_queue, min_ready=1000, max_age_seconds=300
                    )
                ],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    ref = QueueRef.checked(f"sensor {name!r}", resource_key, queue_name, stream_name, group)
    sensor = _ObservationSensor(
        queue=ref,
        asset_key=asset_key_of(queue_asset, f"sensor {name!r}"),
        rule=VersionRule.checked(f"sensor {name!r}", min_ready, max_age_seconds, attempt_delay_seconds),
        checks=queue_checks(name, ref, checks),
    )
    declare = dg.sensor(
        name=name,
        target=queue_asset if isinstance(queue_asset, dg.AssetsDefinition) else None,  # shown at the asset, never run
        minimum_interval_seconds=minimum_interval_seconds,
        description=description
        or (
            f"Observes {sensor.asset_key.to_user_string()} when {sensor.rule.gate.condition} in {ref.in_words}, "
            f"again every {attempt_delay_seconds:g} s until a consumer claims; reads only."
        ),
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, sensor.look, dg.SensorEvaluationContext))


@dataclass(frozen=True, slots=True)
class QueueVersion:
    """A data version of a queue's asset.

    Attributes:
        generation: the queue's count of messages ever claimed.
        attempt: how often this generation was reported while its messages waited, from 0.
        since: time of its first observation, in seconds since 1970.
    """

    generation: int
    attempt: int
    since: float

    @property
    def text(self) -> str:
        """Return the version as Dagster stores it."""
        return f"{self.generation}:{self.attempt}"

    def metadata(self, look: QueueLook) -> dict[str, Any]:
        """Return the metadata of an observation, with the time that the next attempt is counted from."""
        return {**look.metadata, _SINCE: dg.MetadataValue.timestamp(self.since)}


@dataclass(frozen=True, slots=True)
class VersionRule:
    """When a queue's asset gets a new data version.

    Attributes:
        gate: open while messages wait for a consumer.
        attempt_delay_seconds: between two attempts of one generation.
    """

    gate: Gate
    attempt_delay_seconds: float

    @classmethod
    def checked(
        cls, definition: str, min_ready: int | None, max_age_seconds: float | None, attempt_delay_seconds: float
    ) -> VersionRule:
        """Make a rule of the options of a definition, which an error names."""
        try:
            options.positive("attempt_delay_seconds", attempt_delay_seconds)
            return cls(Gate(min_ready, max_age_seconds), attempt_delay_seconds)
        except ConfigurationError as error:
            raise type(error)(f"{definition}: {error}") from None

    def next(self, last: QueueVersion | None, depth: Depth, now: float) -> QueueVersion | None:
        """Return the version after the last one, which may be the same; None while there is none yet."""
        if self.gate.fired_by(depth) is None:
            return last
        if last is None or last.generation != depth.claimed_total:
            return QueueVersion(depth.claimed_total, 0, now)
        if 0 <= now - last.since < self.attempt_delay_seconds:  # a clock that was set back delays no attempt
            return last
        return QueueVersion(last.generation, last.attempt + 1, now)


def observed_version(instance: dg.DagsterInstance, asset_key: dg.AssetKey, queue_id: str) -> QueueVersion | None:
    """Return the version of the newest observation that has one; None if there is none.

    Another code location may observe another queue under the same key, which must not count as a change of this one.
    """
    for record in instance.fetch_observations(asset_key, limit=_MOST_READ).records:
        observation = record.asset_observation
        found = _VERSION.fullmatch(observation.tags.get(_DATA_VERSION_TAG, "")) if observation else None
        if observation is None or found is None:
            continue
        whose = observation.metadata.get(QUEUE_ID)
        if whose is not None and whose.value != queue_id:
            continue
        since = observation.metadata.get(_SINCE)
        known = since.value if isinstance(since, dg.TimestampMetadataValue) else record.timestamp
        return QueueVersion(int(found[1]), int(found[2]), known)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _ObservationSensor:
    """What one tick reports."""

    queue: QueueRef
    asset_key: dg.AssetKey
    rule: VersionRule
    checks: list[QueueCheck]

    def look(self, context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SensorResult:
        """Evaluate one tick of the sensor."""
        last = observed_version(context.instance, self.asset_key, self.queue.identify(resource))
        look, now = self.queue.look(resource), time.time()
        depth, version = look.depth, self.rule.next(last, look.depth, now)
        events: list[Any] = list(new_evaluations(context.instance, self.checks, look))
        if version is not None and version != last:
            events.append(
                dg.AssetObservation(
                    asset_key=self.asset_key,
                    metadata=version.metadata(look),
                    tags={_DATA_VERSION_TAG: version.text},
                )
            )
        observed = f", observed as version {version.text}" if version else ""
        return dg.SensorResult(
            asset_events=events,
            skip_reason=f"{describe(depth, look.place)}{observed}; {self._what_follows(depth, version, now)}.",
            cursor=f"{depth.ready} ready{observed}",
        )

    def _what_follows(self, depth: Depth, version: QueueVersion | None, now: float) -> str:
        """Return what the next version waits for."""
        if depth.paused:
            return "the queue is paused"
        if version is None or self.rule.gate.fired_by(depth) is None:
            return f"the next version follows when {self.rule.gate.condition}"
        remaining = self.rule.attempt_delay_seconds - (now - version.since)
        return f"the next version follows in {remaining:.0f} s, or when a consumer claims"
