"""A queue spec: what another process needs to make the same queue, as JSON and without a secret."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import tenacity

from sluicegate.core import json
from sluicegate.errors import ConfigurationError
from sluicegate.options import OPTIONS

__all__ = ["QueueSpec", "SpecKind", "describe_backoff", "rebuild_backoff"]

SpecKind: TypeAlias = Literal["queue", "stream", "group", "jobs"]
"""What a spec describes: a queue, a stream, a group of a stream, or a queue of jobs."""

_STREAM = {"max_length", "max_age_seconds", "start", "trim_unfinished"}
# `publishes` is False where the key function is a callable, which no spec can carry.
_OF_JOBS = {"kinds", "default_kind", "result_ttl_seconds", "max_ended", "max_result_bytes"}
_KNOWN = {"publishes", *_STREAM, *(name for name, option in OPTIONS.items() if option.in_spec != "no")}

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
        name: the queue's or stream's name.
        url: its Redis, with the name of the variable that holds the password, never the password itself.
        options: the options that differ from their defaults.
        kind: what the spec describes.
        group: the name of the group, for a group of a stream.
    """

    name: str
    url: str
    options: Mapping[str, Any]
    kind: SpecKind = "queue"
    group: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(SpecKind):
            raise ConfigurationError(f"a queue spec is of a kind in {list(get_args(SpecKind))}, not {self.kind!r}")
        if (self.kind == "group") != (self.group is not None):
            raise ConfigurationError(f"a queue spec of kind {self.kind!r} cannot have group={self.group!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain values; that of a queue as every version of the library reads it."""
        values = dict(asdict(self), options=dict(self.options))
        if self.kind == "queue":
            del values["kind"], values["group"]
        return values

    def to_json(self) -> str:
        """Return the spec as JSON text."""
        return json.dumps(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QueueSpec:
        """Read a spec from plain values.

        Raises:
            ConfigurationError: something is missing or unknown.
        """
        needed, optional = {"name", "url", "options"}, {"kind", "group"}
        if not needed <= set(values) <= needed | optional:
            raise ConfigurationError(
                f"a queue spec has {sorted(needed)}, and perhaps {sorted(optional)}, not {sorted(values)}"
            )
        unknown = set(values["options"]) - _KNOWN - (_OF_JOBS if values.get("kind") == "jobs" else set())
        if unknown:
            raise ConfigurationError(f"a queue spec does not know the options {sorted(unknown)}")
        kind, group = values.get("kind", "queue"), values.get("group")
        return cls(values["name"], values["url"], dict(values["options"]), kind, group)

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
