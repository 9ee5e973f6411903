"""The options of a queue, checked, and the form in which a queue travels to other processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sluicegate.core import json
from sluicegate.core.deduplication import KeySource, compile_key_function, portable_key_source
from sluicegate.core.values import Terms
from sluicegate.errors import ConfigurationError

__all__ = ["QueueConfig", "QueueSpec"]

_MOST_DELIVERIES = 4000  # the entry keeps three hex digits
_PORTABLE = (
    "deduplication_window_seconds",
    "visibility_timeout_seconds",
    "heartbeat_interval_seconds",
    "max_delivery_count",
    "message_wait_interval_seconds",
    "retry_budget_seconds",
    "retry_initial_delay_seconds",
    "retry_max_delay_seconds",
)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Options of one queue; see `RedisMessageQueue` for their meaning and defaults."""

    get_deduplication_key: KeySource | None = None
    deduplication: bool | None = None
    deduplication_window_seconds: float = 3600
    visibility_timeout_seconds: float = 300
    heartbeat_interval_seconds: float | None = None
    max_delivery_count: int | None = 10
    message_wait_interval_seconds: float = 5
    retry_budget_seconds: float = 120
    retry_initial_delay_seconds: float = 0.01
    retry_max_delay_seconds: float = 5.0

    def __post_init__(self) -> None:
        self._check_deduplication()
        _positive("deduplication_window_seconds", self.deduplication_window_seconds)
        _positive("visibility_timeout_seconds", self.visibility_timeout_seconds)
        _not_negative("message_wait_interval_seconds", self.message_wait_interval_seconds)
        interval = self.heartbeat_interval_seconds
        if interval is not None:
            _positive("heartbeat_interval_seconds", interval)
            if interval >= self.visibility_timeout_seconds / 2:
                raise ConfigurationError(
                    f"heartbeat_interval_seconds={interval:g} must be less than half of "
                    f"visibility_timeout_seconds={self.visibility_timeout_seconds:g}"
                )
        count = self.max_delivery_count
        if count is not None and (
            isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_DELIVERIES
        ):
            raise ConfigurationError(
                f"max_delivery_count must be None or an int from 1 to {_MOST_DELIVERIES}, not {count!r}"
            )

    @property
    def terms(self) -> Terms:
        """The rules that the scripts need."""
        return Terms(most_deliveries=self.max_delivery_count or 0)

    def portable(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON can carry it. A callable key function stays behind."""
        options = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in _PORTABLE and getattr(self, field.name) != field.default
        }
        source = portable_key_source(self.get_deduplication_key)
        if source is not None:
            options["get_deduplication_key"] = source
        elif self.get_deduplication_key is not None:
            options["publishes"] = False
        return options

    def _check_deduplication(self) -> None:
        if self.deduplication is not None and not isinstance(self.deduplication, bool):
            raise ConfigurationError(f"deduplication must be True, False or None, not {self.deduplication!r}")
        if self.get_deduplication_key is not None:
            if self.deduplication is False:
                raise ConfigurationError("deduplication=False contradicts get_deduplication_key; leave one of them out")
            compile_key_function(self.get_deduplication_key)
        elif self.deduplication:
            raise ConfigurationError(
                "deduplication=True needs get_deduplication_key: a callable, a field, fields or a template"
            )


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as it travels to executors and triggers: JSON, without a secret.

    Attributes:
        name: of the queue.
        url: of its Redis, with the name of the variable that holds the password, never the password.
        options: what differs from the defaults.
    """

    name: str
    url: str
    options: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dict(asdict(self), options=dict(self.options))

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QueueSpec:
        """From plain values.

        Raises:
            ConfigurationError: something is missing or unknown.
        """
        known = {"name", "url", "options"}
        if set(values) != known:
            raise ConfigurationError(f"a queue spec has exactly {sorted(known)}, not {sorted(values)}")
        unknown = set(values["options"]) - {*_PORTABLE, "get_deduplication_key", "publishes"}
        if unknown:
            raise ConfigurationError(f"a queue spec does not know the options {sorted(unknown)}")
        return cls(values["name"], values["url"], dict(values["options"]))

    @classmethod
    def from_json(cls, text: str | bytes) -> QueueSpec:
        """From JSON text."""
        return cls.from_dict(json.loads(text))


def _positive(name: str, value: float) -> None:
    if not _is_number(value) or not value > 0:
        raise ConfigurationError(f"{name} must be a number above 0, not {value!r}")


def _not_negative(name: str, value: float) -> None:
    if not _is_number(value) or not value >= 0:
        raise ConfigurationError(f"{name} must be a number of 0 or more, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
