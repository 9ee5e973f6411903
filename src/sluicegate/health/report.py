"""What a health check found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["HealthCheck", "HealthReport"]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing that was looked at.

    Attributes:
        name: `redis`, `place`, `ready`, `oldest_ready`, `in_flight`, `dead`, `lag` or `worker`.
        is_ok: whether it is as it should be.
        detail: what was found, in words.
        place: the queue, stream or group in words, or the name of the worker; "" for Redis.
        value: what was measured; None where nothing is.
        limit: what it may be at most; None without a limit.
    """

    name: str
    is_ok: bool
    detail: str
    place: str = ""
    value: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All checks of one moment.

    Attributes:
        checks: Redis first, then the places in their order, then the workers.
    """

    checks: Sequence[HealthCheck]

    @property
    def is_ready(self) -> bool:
        """Return whether every check is well."""
        return all(check.is_ok for check in self.checks)

    @property
    def failed(self) -> list[HealthCheck]:
        """Return the checks that are not."""
        return [check for check in self.checks if not check.is_ok]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, the failed checks in front."""
        ordered = sorted(self.checks, key=lambda check: check.is_ok)
        shown = [
            {
                "name": check.name,
                "ok": check.is_ok,
                "detail": check.detail,
                **({"place": check.place} if check.place else {}),
                **({} if check.value is None else {"value": check.value}),
                **({} if check.limit is None else {"limit": check.limit}),
            }
            for check in ordered
        ]
        return {"status": "ready" if self.is_ready else "unready", "checks": shown}
