"""A queue spec: what another process needs to make the same queue, as JSON and without a secret."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tenacity

from sluicegate.core import json
from sluicegate.errors import ConfigurationError
from sluicegate.options import OPTIONS

__all__ = ["QueueSpec", "describe_backoff", "rebuild_backoff"]

# `publishes` is False where the key function is a callable, which no spec can carry.
_KNOWN = {"publishes", *(name for name, option in OPTIONS.items() if option.in_spec != "no")}

# The attribute that holds an argument, where their names differ; versions of tenacity differ in the first.
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
    """What executors and triggers need to make a queue: JSON, without a secret.

    Attributes:
        name: the queue's name.
        url: its Redis, with the name of the variable that holds the password, never the password itself.
        options: the options that differ from their defaults.
    """

    name: str
    url: str
    options: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain values."""
        return dict(asdict(self), options=dict(self.options))

    def to_json(self) -> str:
        """Return the spec as JSON text."""
        return json.dumps(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QueueSpec:
        """Read a spec from plain values.

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
        """Read a spec from JSON text.

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
    """Describe one of tenacity's usual wait strategies as JSON; None for any other, which no spec can carry."""
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
    """Make the wait strategy that `describe_backoff` described.

    Raises:
        ConfigurationError: it describes no wait strategy.
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
