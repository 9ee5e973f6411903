"""A queue as it travels to other processes: its name, where its Redis is, and the options that differ from defaults."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tenacity

from sluicegate.core import json
from sluicegate.errors import ConfigurationError

__all__ = ["PORTABLE", "QueueSpec", "describe_backoff", "rebuild_backoff"]

PORTABLE = frozenset(
    {
        "deduplication_policy",
        "deduplication_window_seconds",
        "visibility_timeout_seconds",
        "heartbeat_interval_seconds",
        "max_delivery_count",
        "max_lease_seconds",
        "on_error",
        "max_pending_length",
        "pending_overload_policy",
        "pending_overload_block_timeout_seconds",
        "enable_completed_queue",
        "max_completed_length",
        "enable_failed_queue",
        "max_failed_length",
        "max_dead_length",
        "strict_payload_types",
        "max_payload_bytes",
        "max_payload_depth",
        "sort_keys",
        "strict_envelope_decoding",
        "require_noeviction",
        "message_wait_interval_seconds",
        "retry_budget_seconds",
        "retry_initial_delay_seconds",
        "retry_max_delay_seconds",
    }
)
"""Options that travel as they are; `get_deduplication_key` and `retry_backoff` may have to stay behind."""

_KNOWN = PORTABLE | {"get_deduplication_key", "publishes", "retry_backoff"}

# Which attribute holds the argument, where they are not named alike; versions of tenacity differ in the first.
_ATTRIBUTES = {
    "multiplier": ("multiplier", "initial"),
    "initial": ("multiplier", "initial"),
    "wait": ("wait_fixed",),
}
_BACKOFFS = {
    "exponential": tenacity.wait_exponential,
    "exponential_jitter": tenacity.wait_exponential_jitter,
    "random_exponential": tenacity.wait_random_exponential,
    "fixed": tenacity.wait_fixed,
    "incrementing": tenacity.wait_incrementing,
}


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
        unknown = set(values["options"]) - _KNOWN
        if unknown:
            raise ConfigurationError(f"a queue spec does not know the options {sorted(unknown)}")
        return cls(values["name"], values["url"], dict(values["options"]))

    @classmethod
    def from_json(cls, text: str | bytes) -> QueueSpec:
        """From JSON text.

        Raises:
            ConfigurationError: it is not JSON; something is missing or unknown.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"a queue spec is JSON as queue.spec().to_json() makes it: {error}") from None
        if not isinstance(values, dict):
            raise ConfigurationError(f"a queue spec is a JSON object, not a {type(values).__name__}")
        return cls.from_dict(values)


def describe_backoff(wait: object) -> dict[str, Any] | None:
    """One of tenacity's usual wait strategies as JSON can carry it; None for any other, which cannot travel."""
    for kind, strategy in _BACKOFFS.items():
        if type(wait) is strategy:
            values: dict[str, Any] = {"kind": kind}
            for name, parameter in inspect.signature(strategy).parameters.items():
                value = _attribute(wait, name)
                if not isinstance(value, (int, float)) or not math.isfinite(value):
                    return None
                if value != parameter.default:
                    values["multiplier" if name == "initial" else name] = value
            return values
    return None


def rebuild_backoff(described: Mapping[str, Any]) -> Any:
    """The wait strategy that `describe_backoff` described.

    Raises:
        ConfigurationError: it describes none.
    """
    values = dict(described) if isinstance(described, Mapping) else {}
    kind = values.pop("kind", None)
    strategy = _BACKOFFS.get(kind) if isinstance(kind, str) else None
    if strategy is None or not all(isinstance(value, (int, float)) for value in values.values()):
        raise ConfigurationError(
            f"a backoff of a queue spec is one of {sorted(_BACKOFFS)} with numbers for arguments, not {described!r}"
        )
    if "multiplier" in values and "multiplier" not in inspect.signature(strategy).parameters:
        values["initial"] = values.pop("multiplier")
    try:
        return strategy(**values)
    except TypeError as error:
        raise ConfigurationError(f"the backoff {described!r} of a queue spec does not work: {error}") from None


def _attribute(wait: object, name: str) -> Any:
    names = _ATTRIBUTES.get(name, (name,))
    return next((getattr(wait, known) for known in names if hasattr(wait, known)), None)
