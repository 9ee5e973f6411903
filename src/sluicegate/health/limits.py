"""The limits within which a place counts as healthy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = ["HealthLimits"]


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Limits of a place; one that is None is not checked.

    Attributes:
        max_ready: messages that a claim would get.
        max_oldest_ready_seconds: age of the oldest ready message.
        max_in_flight: messages that consumers hold.
        max_dead: dead letters.
        max_lag: messages of its stream that a group has not been delivered yet.
        max_worker_silence_seconds: how long ago the loop of a worker in this process may have run.

    Raises:
        ConfigurationError: a limit below 0, or one that is no number.
    """

    max_ready: int | None = None
    max_oldest_ready_seconds: float | None = None
    max_in_flight: int | None = None
    max_dead: int | None = None
    max_lag: int | None = None
    max_worker_silence_seconds: float = 30.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                checks.not_negative(each.name, value)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Make limits of the options of a configuration file.

        Raises:
            ConfigurationError: an option that there is not.
        """
        known = [each.name for each in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ConfigurationError(f"health has no limit {unknown[0]!r}; the limits are {', '.join(known)}")
        return cls(**options)
