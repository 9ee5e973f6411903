"""The JSON that the page's routes answer with, for type checkers and for whoever writes a client."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

__all__ = ["ErrorShape", "GateShape", "LeaseShape", "MessageShape", "Overview", "PlaceShape", "Rates", "Row"]


class ErrorShape(TypedDict):
    """What went wrong, without payloads or passwords."""

    type: str
    message: str


class GateShape(TypedDict):
    """A gate: the lines in the chart of its place."""

    label: str
    min_ready: int | None
    max_age_seconds: float | None
    min_dead: int | None


class Rates(TypedDict):
    """Messages per second, over the last ten seconds."""

    published_per_second: float
    acked_per_second: float


class Row(TypedDict):
    """One place in the overview.

    Its `kind` is `queue`, `stream`, `group` or `jobs`. `depth` and `stats` have the fields of `Depth` and `QueueStats`;
    a stream has `info` instead of a depth. `history` holds pairs of time and ready messages (of a stream: messages).
    """

    kind: str
    name: str
    group: str | None
    depth: dict[str, Any] | None
    stats: NotRequired[dict[str, Any] | None]
    info: NotRequired[dict[str, Any]]
    rates: Rates
    history: list[tuple[float, float]]
    gate: NotRequired[GateShape]
    open: NotRequired[str | None]
    error: NotRequired[ErrorShape]


class Overview(TypedDict):
    """Every place. With `error`, Redis could not be read, and the places are as they were last seen.

    With `since`, an event has what is different from the events before it on the same connection: its `places` are
    those that have changed, without `stats`, and with the newest point of their history only. A place that is left out
    is as it was before, but for its ages and waiting times, and its history has one more point with the same depth.
    """

    at: float
    refreshed_at: float
    since: NotRequired[int]
    places: list[Row]
    error: NotRequired[ErrorShape]


class PlaceShape(TypedDict):
    """One place with its chart: points of time, ready, in flight, dead and age of the oldest ready message.

    The first event of a connection has its whole `history`, as `api/place` has; later ones the `points` to append.
    """

    row: Row
    history: NotRequired[list[tuple[float, float, float, float, float | None]]]
    points: NotRequired[list[tuple[float, float, float, float, float | None]]]
    gates: list[GateShape]
    open: str | None
    why_not_ready: str


class LeaseShape(TypedDict):
    """A lease: who holds how many messages until when. Times are seconds since the epoch."""

    lease_id: str
    consumer: str | None
    messages: int
    deadline: float
    seconds_left: float
    opened: float | None
    held_since: float
    extended: float
    takeovers: int
    max_delivery_count: int
    expired: bool


class MessageShape(TypedDict):
    """A message as it may be shown: masked, and cut where it is long."""

    id: str | None
    enqueued_at: float | None
    delivery_count: int
    headers: dict[str, str]
    deduplication_key: str | None
    size: int
    payload: str
    truncated: bool
    format: str
    masked: bool
    reason: NotRequired[str]
    error_type: NotRequired[str]
    error: NotRequired[str]
    buried_at: NotRequired[float]
    verb: NotRequired[str]
    failed_at: NotRequired[float]
    completed_at: NotRequired[float]
    lease_id: NotRequired[str]
    consumer: NotRequired[str | None]
    deadline: NotRequired[float]
