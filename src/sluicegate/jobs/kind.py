"""Kinds of jobs: how often each is tried, how long it may be silent, and how long it waits between attempts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sluicegate import checks
from sluicegate.core.policies import DEFAULT_BACKOFF, pause_seconds
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.options import OPTIONS, RetryBackoff
from sluicegate.spec import describe_backoff, rebuild_backoff

__all__ = ["NO_KIND", "SET_BY_KIND", "JobKind", "JobKinds", "checked_kind", "refuse_options"]

NO_KIND = "default"
"""The kind of a job that was given none."""

SET_BY_KIND = ("visibility_timeout_seconds", "max_delivery_count", "retry_backoff")
"""The options of a queue that follow from the kinds of a queue of jobs."""

_MAX_KIND_LENGTH = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_ATTEMPTS = 4000  # as of deliveries: an entry keeps three hex digits


@dataclass(frozen=True, slots=True)
class JobKind:
    """How the jobs of one kind are tried.

    Attributes:
        max_attempts: attempts after which a job has failed. Crashes, lost leases and errors count; a worker that shuts
            down does not. 1 is for work that must not be repeated.
        visibility_timeout_seconds: how long a worker may be silent before another one gets its job. A lease's heartbeat
            extends it for as long as the work takes.
        retry_backoff: how long a job waits after a failed attempt, as one of tenacity's wait strategies; None:
            exponential from 1 s to 300 s with jitter.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    max_attempts: int = 3
    visibility_timeout_seconds: float = 300
    retry_backoff: RetryBackoff | None = None

    def __post_init__(self) -> None:
        if isinstance(self.retry_backoff, Mapping):  # as a spec carries it
            object.__setattr__(self, "retry_backoff", rebuild_backoff(self.retry_backoff))
        checks.count("max_attempts", self.max_attempts, _MAX_ATTEMPTS)
        checks.positive("visibility_timeout_seconds", self.visibility_timeout_seconds)
        OPTIONS["retry_backoff"].check("retry_backoff", self.retry_backoff)

    def pause_seconds(self, attempts: int, error: BaseException | None = None) -> float:
        """Return how long a job waits after so many attempts."""
        return pause_seconds(self.retry_backoff or DEFAULT_BACKOFF, attempts, error)

    def portable(self) -> dict[str, Any]:
        """Return the kind as JSON values; a backoff of the user's own is left out."""
        values = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "retry_backoff" and getattr(self, each.name) != each.default
        }
        described = None if self.retry_backoff is None else describe_backoff(self.retry_backoff)
        return values if described is None else {**values, "retry_backoff": described}

    @classmethod
    def of(cls, name: str, value: object) -> JobKind:
        """Return a kind as it was given, or made from what a spec carries.

        Args:
            name: what it was given for, for errors.
            value: a `JobKind` or a mapping of its attributes.

        Raises:
            ConfigurationError: it is neither.
        """
        if isinstance(value, JobKind):
            return value
        if not isinstance(value, Mapping):
            raise OptionTypeError(f"{name} must be a JobKind, not {value!r}")
        try:
            return cls(**value)
        except TypeError as error:
            raise ConfigurationError(f"{name} has attributes that no JobKind has: {error}") from None


class JobKinds:
    """The kinds of one queue of jobs, by name.

    Args:
        kinds: by name; None for none.
        default: of a job whose kind has no entry of its own.

    Attributes:
        default: of a job whose kind has no entry of its own.
        most_attempts: the largest `max_attempts` among them.
        shortest_seconds: the shortest visibility timeout among them.
        differ: whether their visibility timeouts differ.

    Raises:
        ConfigurationError: something that is no kind, or has no name.
    """

    __slots__ = ("_by_name", "default", "differ", "most_attempts", "shortest_seconds")

    def __init__(self, kinds: Mapping[str, Any] | None, default: object) -> None:
        if kinds is not None and not isinstance(kinds, Mapping):
            raise OptionTypeError(f"kinds must map the name of each kind to its JobKind, not {kinds!r}")
        self._by_name: dict[str, JobKind] = {}
        for name, value in (kinds or {}).items():
            self._by_name[checked_kind(name, "the name of a kind")] = JobKind.of(f"kinds[{name!r}]", value)
        self.default = JobKind.of("default_kind", default)
        every = [self.default, *self._by_name.values()]
        timeouts = {kind.visibility_timeout_seconds for kind in every}
        self.most_attempts = max(kind.max_attempts for kind in every)
        self.shortest_seconds = min(timeouts)
        self.differ = len(timeouts) > 1

    def get(self, name: str) -> JobKind:
        """Return the kind of this name, or the default."""
        return self._by_name.get(name, self.default)

    def queue_options(self) -> dict[str, Any]:
        """Return the options in `SET_BY_KIND` that follow from these kinds."""
        return dict(
            zip(SET_BY_KIND, (self.shortest_seconds, self.most_attempts, self.default.retry_backoff), strict=True)
        )

    def portable(self) -> dict[str, Any]:
        """Return the options that make these kinds anew, as JSON values."""
        options: dict[str, Any] = {}
        if self._by_name:
            options["kinds"] = {name: kind.portable() for name, kind in self._by_name.items()}
        if self.default != JobKind():
            options["default_kind"] = self.default.portable()
        return options


def checked_kind(name: object, what: str) -> str:
    """Return the name of a kind.

    Args:
        name: as it was given.
        what: where it was given, for errors.

    Raises:
        ConfigurationError: it is blank or too long, or holds a control character or a lone surrogate.
    """
    if not isinstance(name, str):
        raise OptionTypeError(f"{what} must be a str, not {type(name).__name__}")
    if not name.strip() or len(name) > _MAX_KIND_LENGTH or _CONTROL.search(name):
        raise ConfigurationError(
            f"{what} must have 1 to {_MAX_KIND_LENGTH} characters, one of them visible and none a control character"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} holds a lone surrogate; UTF-8 cannot carry it") from None
    return name


def refuse_options(options: Mapping[str, Any]) -> None:
    """Refuse options that no queue of jobs takes.

    Raises:
        ConfigurationError: an option that is set per kind.
        OptionTypeError: an option that no queue has.
    """
    for name in SET_BY_KIND:
        if name in options:
            raise ConfigurationError(
                f"{name} is set per kind of job: give kinds={{'email': JobKind(...)}} or default_kind=JobKind(...), "
                "whose attributes are max_attempts, visibility_timeout_seconds and retry_backoff"
            )
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise OptionTypeError(
            f"a queue of jobs has no option {unknown[0]!r}; besides its own it takes those of a queue: "
            f"{', '.join(sorted(set(OPTIONS) - set(SET_BY_KIND)))}"
        )
