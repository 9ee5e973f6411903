"""A bound on a queue's depth as a value, which an asset check and a sensor evaluate alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from dagster_sluicegate.compat import check_history
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import shown
from dagster_sluicegate.queue_refs import QUEUE_ID, QueueLook, QueueRef
from sluicegate import Depth
from sluicegate.errors import ConfigurationError

__all__ = [
    "Bound",
    "QueueCheck",
    "new_evaluations",
    "queue_checks",
]

Bound = Literal["max_ready", "max_age_seconds", "max_dead"]

_BOUNDS: tuple[Bound, ...] = ("max_ready", "max_age_seconds", "max_dead")
_SEVERITY = "sluicegate/severity"
_MOST_READ = 20  # evaluations of others that may lie above the newest one of ours
_RESOURCE_KEY = "sluicegate/resource_key"
_NAMES = {name: f"sluicegate/{name}" for name in ("queue_name", "stream_name", "group")}


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueCheck:
    """A bound on a queue's depth, and the asset check that stands for it.

    Attributes:
        queue: whose depth is bounded.
        asset_key: of the asset that is checked.
        name: of the check.
        bound: name of the option that holds the bound.
        most: the largest value that passes.
        severity: of a failure.
        blocking: whether a failure keeps downstream assets from running.
    """

    queue: QueueRef
    asset_key: dg.AssetKey
    name: str
    bound: Bound
    most: float
    severity: dg.AssetCheckSeverity
    blocking: bool

    @classmethod
    def of(cls, spec: dg.AssetCheckSpec) -> QueueCheck | None:
        """Read the bound back from a check's metadata; None for a check of another kind."""
        for bound in _BOUNDS:
            most = spec.metadata.get(f"sluicegate/{bound}")
            if most is not None:
                return cls(
                    queue=QueueRef(
                        spec.metadata[_RESOURCE_KEY],
                        Names(**{name: spec.metadata.get(key) for name, key in _NAMES.items()}),
                    ),
                    asset_key=spec.asset_key,
                    name=spec.name,
                    bound=bound,
                    most=most,
                    severity=dg.AssetCheckSeverity(spec.metadata[_SEVERITY]),
                    blocking=spec.blocking,
                )
        return None

    @property
    def metadata(self) -> dict[str, Any]:
        """Return what `of` reads."""
        named = {key: getattr(self.queue.names, name) for name, key in _NAMES.items()}
        return {
            f"sluicegate/{self.bound}": self.most,
            _SEVERITY: self.severity.value,
            _RESOURCE_KEY: self.queue.resource_key,
            **{key: name for key, name in named.items() if name is not None},
        }

    def passes(self, depth: Depth) -> bool:
        """Return whether a depth is within the bound."""
        return self._found(depth) <= self.most

    def describe(self, look: QueueLook) -> str:
        """Return in words what was found, and the bound."""
        depth, place = look.depth, shown(look.place)
        found, paused = self._found(depth), " (the queue is paused)" if depth.paused else ""
        if self.bound == "max_ready":
            return f"Messages ready in {place}: {found:,}; at most {self.most:,} pass{paused}."
        if self.bound == "max_dead":
            return f"Dead letters in {place}: {found:,}; at most {self.most:,} pass."
        if depth.oldest_ready_age_seconds is None:
            return f"No message is ready in {place}."
        return f"The oldest message in {place} has been ready for {found:.1f} s; at most {self.most:g} s pass{paused}."

    def result(self, look: QueueLook) -> dg.AssetCheckResult:
        """Evaluate the check within a run, which knows the asset's key; that may have got a prefix."""
        return dg.AssetCheckResult(
            passed=self.passes(look.depth),
            severity=self.severity,
            metadata=self._measured(look),
            description=self.describe(look),
        )

    def evaluation(self, look: QueueLook) -> dg.AssetCheckEvaluation:
        """Evaluate the check without a run."""
        return dg.AssetCheckEvaluation(
            asset_key=self.asset_key,
            check_name=self.name,
            passed=self.passes(look.depth),
            severity=self.severity,
            blocking=self.blocking,
            metadata=self._measured(look),
            description=self.describe(look),
        )

    def _found(self, depth: Depth) -> float:
        if self.bound == "max_ready":
            return depth.ready
        return depth.dead if self.bound == "max_dead" else depth.oldest_ready_age_seconds or 0.0

    def _measured(self, look: QueueLook) -> dict[str, Any]:
        return {**look.metadata, f"sluicegate/{self.bound}": self.most}


def queue_checks(sensor: str, queue: QueueRef, definitions: Sequence[dg.AssetChecksDefinition]) -> list[QueueCheck]:
    """Return the bounds of the checks that a sensor of a queue is to evaluate.

    Raises:
        ConfigurationError: a check that is not one of this queue, or one that is there twice.
    """
    found: dict[dg.AssetCheckKey, QueueCheck] = {}
    for definition in definitions:
        if not isinstance(definition, dg.AssetChecksDefinition):
            raise ConfigurationError(
                f"sensor {sensor!r}: checks must be asset checks such as build_queue_depth_check returns, "
                f"not {definition!r}"
            )
        for spec in definition.check_specs:
            check = QueueCheck.of(spec)
            if check is None:
                raise ConfigurationError(
                    f"sensor {sensor!r}: the check {spec.name!r} is not one of a queue; build it with "
                    "build_queue_depth_check, build_queue_age_check or build_dead_letter_check"
                )
            if check.queue != queue:
                raise ConfigurationError(
                    f"sensor {sensor!r}: the check {spec.name!r} is one of {check.queue.in_words}, and the sensor "
                    f"reads {queue.in_words}; give both the same resource_key and names"
                )
            if spec.key in found:
                raise ConfigurationError(
                    f"sensor {sensor!r}: the check {spec.name!r} of {spec.asset_key.to_user_string()!r} is there "
                    "twice; give each check a name of its own"
                )
            found[spec.key] = check
    return list(found.values())


def new_evaluations(
    instance: dg.DagsterInstance, checked: Sequence[QueueCheck], look: QueueLook
) -> list[dg.AssetCheckEvaluation]:
    """Return the evaluations that differ from the newest ones in the event log, which is all that is remembered."""
    return [
        check.evaluation(look)
        for check in checked
        if _newest(instance, check, look.queue_id) is not check.passes(look.depth)
    ]


def _newest(instance: dg.DagsterInstance, check: QueueCheck, queue_id: str) -> bool | None:
    """Return whether a check passed the last time; None if it never did, or is being executed or could not be.

    Another code location may check another queue under the same key, which must not count as a change of this one.
    """
    key = dg.AssetCheckKey(check.asset_key, check.name)
    for record in check_history(instance, key, limit=_MOST_READ):
        passed = {"SUCCEEDED": True, "FAILED": False}.get(record.status.value)
        if passed is None or record.evaluation is None:
            return None
        whose = record.evaluation.metadata.get(QUEUE_ID)
        if whose is None or whose.value == queue_id:
            return passed
    return None
