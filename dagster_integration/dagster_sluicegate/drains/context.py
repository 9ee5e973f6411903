"""The second argument of `process` in Dagster, and what the function adds through it to the outcome of its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from sluicegate.draining.context import DrainContext

__all__ = ["QueueDrainContext", "StepNotes"]

_OURS = "sluicegate/"


class StepNotes:
    """Metadata and check results that the batches of a step add to its outcome.

    Args:
        label: names the definition in errors.
        checks: names of the checks that the definition declares.
    """

    def __init__(self, label: str = "a drain", checks: Sequence[str] = ()) -> None:
        self.metadata: dict[str, Any] = {}
        self._label = label
        self._checks = tuple(checks)
        self._results: dict[str, dg.AssetCheckResult] = {}

    @property
    def check_results(self) -> list[dg.AssetCheckResult]:
        """Return one result per check."""
        return list(self._results.values())

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add entries; a later batch replaces those of an earlier one.

        Raises:
            ValueError: a name that this library uses itself.
        """
        ours = sorted(name for name in metadata if str(name).startswith(_OURS))
        if ours:
            raise ValueError(f"{self._label}: the metadata {ours[0]!r} is this library's; use another name")
        self.metadata.update(metadata)

    def add_check_result(self, result: dg.AssetCheckResult) -> None:
        """Add a result; of several for one check, the first that failed counts, otherwise the last.

        Raises:
            TypeError: it is no `AssetCheckResult`.
            ValueError: the definition declares no such check.
        """
        if not isinstance(result, dg.AssetCheckResult):
            raise TypeError(f"{self._label}: a check result must be an AssetCheckResult, not a {type(result).__name__}")
        name = result.check_name or (self._checks[0] if len(self._checks) == 1 else None)
        if name not in self._checks:
            known = ", ".join(map(repr, self._checks)) or "none"
            raise ValueError(
                f"{self._label} has no check {name!r} (it declares {known}); add it to check_specs, and name it in the "
                "result's check_name"
            )
        earlier = self._results.get(name)
        if earlier is None or earlier.passed:
            self._results[name] = dg.AssetCheckResult(
                passed=result.passed,
                asset_key=result.asset_key,
                check_name=name,
                metadata=result.metadata,
                severity=result.severity,
                description=result.description,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDrainContext(DrainContext):
    """The second argument of `process` in Dagster: a `DrainContext` with Dagster's context of the step.

    A step has one partition, so `partition` is 0 and `chunk` is the number of the batch in this run.

    Attributes:
        step: Dagster's context of the step.
    """

    step: dg.AssetExecutionContext | dg.OpExecutionContext
    _notes: StepNotes = field(default_factory=StepNotes, repr=False, compare=False)

    @property
    def asset(self) -> dg.AssetExecutionContext:
        """Return Dagster's context of the asset, with its `log`, `resources`, `run` and `partition_key`.

        Raises:
            TypeError: the drain is an op; use `op`.
        """
        if not isinstance(self.step, dg.AssetExecutionContext):
            raise TypeError("this drain is an op and has no asset; use ctx.op, or ctx.step in either of them")
        return self.step

    @property
    def op(self) -> dg.OpExecutionContext:
        """Return Dagster's context of the op, also that of an asset."""
        return self.step.op_execution_context if isinstance(self.step, dg.AssetExecutionContext) else self.step

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata to the materialization (of an op: to its output).

        An entry of a later batch replaces that of an earlier one. `dagster/row_count` replaces the count of messages.

        Raises:
            ValueError: a name that begins with `sluicegate/`.
        """
        self._notes.add_metadata(metadata)

    def add_check_result(self, result: dg.AssetCheckResult) -> None:
        """Add the result of a check that the asset declares in `check_specs`.

        Every batch may add one. If it failed for one batch, it failed; otherwise the last result counts.

        Raises:
            TypeError: it is no `AssetCheckResult`.
            ValueError: the asset declares no such check.
        """
        self._notes.add_check_result(result)
