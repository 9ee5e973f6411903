"""Routes that change a place: publish, redrive, purge, cancel, pause, resume, reap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from sluicegate.core.transitions.reap_expired import reap_expired_operation
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.jobs import JobKind
from sluicegate.survey import Snapshot, read_snapshots
from sluicegate.web.answers import answer, encoded
from sluicegate.web.page import Named, found_place

__all__ = ["router"]

_PATIENT = JobKind(max_attempts=4000)
_MAX_BYTES = 64 * 1024 * 1024
_CLAIMED_FROM = ("queue", "group", "jobs")
Ids = Annotated[list[str], Field(max_length=10_000)]
Where = Annotated[Named, Depends(found_place)]

router = APIRouter()


class _Body(BaseModel):
    """The JSON of a write; a field that it does not know is refused instead of ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Publish(_Body):
    """What is published, and how often.

    A payload given as text is JSON if it is an object or a list, unless `format` says otherwise.
    """

    payload: str | dict[str, Any] | list[Any]
    format: Literal["auto", "json", "text"] = "auto"
    headers: dict[str, str] | None = None
    deduplication_key: str | None = Field(default=None, min_length=1)
    delay_seconds: float = Field(default=0, ge=0)
    count: int = Field(default=1, ge=1, le=10_000)
    kind: str | None = None


class Redrive(_Body):
    """Which dead letters are redriven; all of them without a filter."""

    reason: str | None = None
    ids: Ids | None = None
    older_than_seconds: float | None = Field(default=None, ge=0)
    limit: int | None = Field(default=None, ge=1)
    dry_run: bool = False


class Purge(_Body):
    """What is deleted; `confirm` repeats the name of the place, so that the wrong one is not purged."""

    state: Literal["pending", "returned", "delayed", "dead", "completed", "failed"]
    confirm: str
    older_than_seconds: float | None = Field(default=None, ge=0)


class Cancel(_Body):
    """Which messages are deleted."""

    ids: Ids


@router.post("/api/publish")
def publish(where: Where, body: Publish) -> Response:
    """Publish a message to a queue or stream, or enqueue a job, once or several times."""
    where.needs("queue", "stream", "jobs")
    payload = _payload(body)
    if len(encoded(payload)) * body.count > _MAX_BYTES:
        raise ConfigurationError(
            f"{body.count} copies of this payload are more than {_MAX_BYTES:,} bytes; publish fewer"
        )
    options: dict[str, Any] = {"headers": body.headers}
    if where.found.kind != "stream":
        options["delay_seconds"] = body.delay_seconds
    elif body.delay_seconds:
        raise ConfigurationError("a stream delivers at once; leave delay_seconds out")
    key = body.deduplication_key
    place = where.open(**({} if key is None else {"get_deduplication_key": lambda _: key}))
    payloads = [payload] * body.count
    if where.found.kind == "jobs":
        if isinstance(payload, str):
            raise ConfigurationError("the payload of a job is a JSON object or list; this is neither")
        if _holds_jobs(where):  # their owner has said how ended jobs are kept
            place.keep_as_stored()
        with _storable():
            report = place.enqueue_many(payloads, kind=body.kind, **options)
    elif body.kind is not None:
        raise ConfigurationError(f"only jobs have a kind; {where.place} has none")
    else:
        with _storable():
            report = place.publish_many(payloads, **options)
    return answer({"accepted": report.accepted, "duplicates": report.duplicates, "ids": report.ids})


@router.post("/api/redrive")
def redrive(where: Where, body: Redrive) -> Response:
    """Make dead letters pending again."""
    where.needs(*_CLAIMED_FROM)
    report = where.open().redrive(
        reason=body.reason,
        ids=body.ids,
        older_than_seconds=body.older_than_seconds,
        limit=body.limit,
        dry_run=body.dry_run,
    )
    return answer({"redriven": report.redriven, "blocked": report.blocked, "scanned": report.scanned})


@router.post("/api/purge")
def purge(where: Where, body: Purge) -> Response:
    """Delete everything in one state."""
    where.needs(*_CLAIMED_FROM)
    place = where.place
    if body.confirm not in (place.name, place.group):
        raise ConfigurationError(f"confirm does not name {place}; repeat its name to delete its {body.state} messages")
    return answer({"purged": where.open().purge(body.state, older_than_seconds=body.older_than_seconds)})


@router.post("/api/cancel")
def cancel(where: Where, body: Cancel) -> Response:
    """Delete waiting messages by their ids."""
    return answer({"cancelled": where.open().cancel(body.ids)})


@router.post("/api/pause")
def pause(where: Where) -> Response:
    """Keep claims from taking new messages."""
    where.needs(*_CLAIMED_FROM)
    return answer({"paused": True, "changed": where.open().pause()})


@router.post("/api/resume")
def resume(where: Where) -> Response:
    """Let claims take messages again."""
    where.needs(*_CLAIMED_FROM)
    return answer({"paused": False, "changed": where.open().resume()})


@router.post("/api/reap")
def reap(where: Where) -> Response:
    """Return the messages of expired leases to the queue, as the next claim would.

    The page does not know after how many deliveries the consumers bury a message, so it buries none.
    """
    where.needs(*_CLAIMED_FROM)
    is_jobs = where.found.kind == "jobs"
    queue = where.open(**({"default_kind": _PATIENT} if is_jobs else {"max_delivery_count": None}))
    session = queue.session
    ids = session.runner.run(reap_expired_operation(session.keys, session.rules))
    return answer({"recovered": len(ids)})


@contextmanager
def _storable() -> Iterator[None]:
    """Refuse a payload that cannot be stored as the request's mistake: a lone surrogate, or an integer beyond 64 bits.

    Raises:
        ConfigurationError: it cannot be stored; the text names where, and no value.
    """
    try:
        yield
    except RedisMessageQueueError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{error}; nothing was published") from None


def _holds_jobs(where: Named) -> bool:
    state = read_snapshots(where.page.gateway, [where.place], retry=False)[where.place]
    return isinstance(state, Snapshot) and state.holds_jobs


def _payload(body: Publish) -> str | dict[str, Any] | list[Any]:
    """Return the payload: the value of a JSON object or list, and any other text as it is.

    Raises:
        ConfigurationError: it is said to be JSON and is not.
    """
    given = body.payload
    if not isinstance(given, str) or body.format == "text":
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        if body.format == "json":
            raise ConfigurationError("the payload is not JSON; choose the format text to publish it as it is") from None
        return given
    # A bare number or string is stored as the text that was typed, which is the same JSON.
    return value if isinstance(value, (dict, list)) else given
