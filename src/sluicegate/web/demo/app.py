"""The page with the demo's own routes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from sluicegate.gates import Gate
from sluicegate.gateway import RedisGateway
from sluicegate.web.access import TokenAccess
from sluicegate.web.app import create_app
from sluicegate.web.demo.link import OneTimeLink
from sluicegate.web.demo.pool import LEASE_SECONDS, NAME, DemoPool, DemoSettings, open_jobs
from sluicegate.web.demo.view import DemoView

__all__ = ["Demo", "create_demo"]

_MIN_READY, _MAX_AGE_SECONDS = 200, 60.0
router = APIRouter(prefix="/api/demo")


class Enqueue(BaseModel):
    """What a click on a kind enqueues."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["email", "webhook", "thumbnail", "invoice"]
    count: int = Field(default=1, ge=1, le=5000)


class Change(BaseModel):
    """Settings to change; what is left out stays."""

    model_config = ConfigDict(extra="forbid")
    workers: int | None = None
    latency_ms: int | None = None
    fail_percent: int | None = None
    hang_percent: int | None = None


class Demo:
    """A running demo: its page, its workers, and the link that opens it.

    Attributes:
        app: the ASGI application.
        pool: the workers.
        jobs: the queue that they work on.
        token: what the login form accepts.
        link: the path that lets the first visitor in without the form.
    """

    def __init__(self, gateway: RedisGateway, settings: DemoSettings, lease_seconds: float) -> None:
        self.token, once = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.jobs = open_jobs(gateway, lease_seconds=lease_seconds)
        self.pool = DemoPool(gateway, settings, lease_seconds=lease_seconds)
        self.view = DemoView(self.jobs, self.pool)
        self.link = f"/open?once={once}"
        access = TokenAccess(self.token)
        gates: Mapping[str, Gate] = {NAME: Gate(min_ready=_MIN_READY, max_age_seconds=_MAX_AGE_SECONDS)}
        self.app: FastAPI = create_app(
            gateway=gateway, access=access, gates=gates, title="Sluicegate demo", routers=[router]
        )
        self.app.state.demo = self
        self.app.add_middleware(OneTimeLink, access=access, secret=once)

    def enqueue(self, kind: str, count: int) -> int:
        """Enqueue jobs of a kind; return how many."""
        return self.jobs.enqueue_many([{"number": number} for number in range(count)], kind=kind).accepted


@contextmanager
def create_demo(
    url: str, settings: DemoSettings | None = None, *, lease_seconds: float = LEASE_SECONDS, first_jobs: int = 6
) -> Iterator[Demo]:
    """Make the demo on a Redis of its own, start its workers, and stop them in the end.

    Args:
        url: of a Redis that nothing else uses.
        settings: to begin with; four workers by default.
        lease_seconds: how long a worker may be silent before another one gets its job.
        first_jobs: jobs that wait when the page opens.
    """
    gateway = RedisGateway(url=url)
    try:
        demo = Demo(gateway, settings or DemoSettings(), lease_seconds)
        demo.enqueue("email", first_jobs)
        demo.pool.change()
        try:
            yield demo
        finally:
            demo.pool.stop()
            demo.app.state.close()
    finally:
        gateway.close()


def _demo(request: Request) -> Demo:
    demo: Demo = request.app.state.demo
    return demo


Here = Annotated[Demo, Depends(_demo)]


@router.get("/state")
def state(here: Here) -> dict[str, Any]:
    """Return jobs, workers and settings."""
    return here.view.read()


@router.post("/enqueue")
def enqueue(here: Here, asked: Enqueue) -> dict[str, int]:
    """Enqueue jobs of one kind."""
    return {"accepted": here.enqueue(asked.kind, asked.count)}


@router.post("/settings")
def settings(here: Here, asked: Change) -> dict[str, bool]:
    """Change the pool while it works."""
    here.pool.change(**asked.model_dump(exclude_none=True))
    return {"ok": True}


@router.post("/reclaim")
def reclaim(here: Here) -> dict[str, list[str]]:
    """Take back the jobs of workers that were silent for too long."""
    return {"ids": here.jobs.reclaim_stuck()}
