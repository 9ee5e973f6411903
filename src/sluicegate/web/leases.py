"""Routes that show who holds what: leases and consumers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from sluicegate.core.transitions.in_flight import in_flight_operation
from sluicegate.message import InFlightMessage
from sluicegate.web.answers import answer
from sluicegate.web.page import Named, found_place
from sluicegate.web.shapes import LeaseShape

__all__ = ["router"]

_MAX_MESSAGES = 20_000

router = APIRouter()
Where = Annotated[Named, Depends(found_place)]


@router.get("/api/leases")
def leases(where: Where) -> Response:
    """Return the open leases, the one that expires first in front; `whole` says whether these are all of them."""
    where.needs("queue", "group", "jobs")
    found, is_whole = _leases(where.open())
    return answer({"leases": found, "whole": is_whole})


@router.get("/api/consumers")
def consumers(where: Where) -> Response:
    """Return who holds messages: of a group all its consumers, otherwise those that hold leases."""
    where.needs("queue", "group", "jobs")
    queue = where.open()
    found, is_whole = _leases(queue)
    if where.found.kind != "group":
        return answer({"consumers": _holders(found), "whole": is_whole})
    leases_of = {each["name"]: each["leases"] for each in _holders(found)}
    known = [
        {
            "name": each.name,
            "messages": each.pending,
            "leases": leases_of.get(each.name, 0),
            "idle_seconds": each.idle_seconds,
            "foreign": each.foreign,
        }
        for each in queue.consumers()
    ]
    return answer({"consumers": known, "whole": True})


def _leases(queue: Any) -> tuple[list[LeaseShape], bool]:
    """Gather the messages in flight by their leases; their payloads are not read."""
    session = queue.session
    held = session.runner.run(in_flight_operation(session.keys, _MAX_MESSAGES, 0, whole=False))
    found: dict[str, LeaseShape] = {}
    for each in held:
        message = InFlightMessage.from_held(each)
        lease = found.get(message.lease_id)
        if lease is None:
            found[message.lease_id] = _lease(message)
        else:
            lease["messages"] += 1
            lease["max_delivery_count"] = max(lease["max_delivery_count"], message.delivery_count)
    return list(found.values()), len(held) < _MAX_MESSAGES


def _lease(message: InFlightMessage) -> LeaseShape:
    return {
        "lease_id": message.lease_id,
        "consumer": message.consumer,
        "messages": 1,
        "deadline": message.deadline.timestamp(),
        "seconds_left": message.seconds_left,
        "opened": None if message.opened_at is None else message.opened_at.timestamp(),
        "held_since": message.held_since.timestamp(),
        "extended": message.extended_at.timestamp(),
        "takeovers": message.takeovers,
        "max_delivery_count": message.delivery_count,
        "expired": message.expired,
    }


def _holders(leases: list[LeaseShape]) -> list[dict[str, Any]]:
    """Sum leases up by their consumers."""
    found: dict[str, dict[str, Any]] = {}
    for lease in leases:
        name = lease["consumer"] or ""
        each = found.setdefault(
            name, {"name": name, "messages": 0, "leases": 0, "idle_seconds": None, "foreign": False}
        )
        each["messages"] += lease["messages"]
        each["leases"] += 1
        idle = lease["deadline"] - lease["seconds_left"] - lease["extended"]
        each["idle_seconds"] = idle if each["idle_seconds"] is None else min(each["idle_seconds"], idle)
    return sorted(found.values(), key=lambda each: str(each["name"]))
