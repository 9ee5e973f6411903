"""Whether what uses Redis is fit for work: Redis answers, limits are kept, and workers run.

`check_health` is a plain function. `health_router` serves it with FastAPI, which is loaded only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.extras import extra_needed
from sluicegate.health.checking import check_health
from sluicegate.health.limits import HealthLimits
from sluicegate.health.report import HealthCheck, HealthReport

if TYPE_CHECKING:
    from sluicegate.health.router import health_router

__all__ = ["HealthCheck", "HealthLimits", "HealthReport", "check_health", "health_router"]


if not TYPE_CHECKING:  # a checker of types would accept every name

    def __getattr__(name: str) -> object:
        """Load the router, and FastAPI with it, when it is used."""
        if name != "health_router":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with extra_needed("web", "health_router"):
            from sluicegate.health.router import health_router

        return health_router
