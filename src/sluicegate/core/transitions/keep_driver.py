"""Keep driver: a driver of a run sends a heartbeat, and learns which others do."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys

__all__ = ["Drivers", "LiveDriver", "keep_driver_call"]

_FIELDS = 4
_PATIENCE_SECONDS = 1.0  # a heartbeat is not worth more waiting


@dataclass(frozen=True, slots=True)
class LiveDriver:
    """Describes another driver of a run.

    Attributes:
        nonce: identifies it.
        began_us: when it sent its first heartbeat, by the server's clock.
        until_ms: until when the last one counts.
        place: where it runs.
    """

    nonce: bytes
    began_us: int
    until_ms: int
    place: str


@dataclass(frozen=True, slots=True)
class Drivers:
    """Holds the answer to a heartbeat.

    Attributes:
        began_us: when the driver that asked began; 0 once it has ended.
        others: the other drivers of the run that are alive.
    """

    began_us: int
    others: tuple[LiveDriver, ...] = ()


def keep_driver_call(keys: QueueKeys, run_id: str, nonce: bytes, place: str, *, life_seconds: float) -> Call[Drivers]:
    """Prepare the call that sends a heartbeat and lists the other drivers of the run.

    Args:
        keys: the keys of the queue.
        run_id: of the run.
        nonce: identifies the driver.
        place: where it runs, for others to read.
        life_seconds: how long the heartbeat counts; 0 once the driver has ended.
    """
    return Call(
        scripts.load("keep_driver"),
        (keys.leases, keys.drivers(run_id)),
        (nonce, ceil(life_seconds * 1000), place.encode(errors="replace")),
        _decode,
        patience_seconds=_PATIENCE_SECONDS,
    )


def _decode(reply: list[Any]) -> Drivers:
    began, *rest = reply
    others = (rest[first : first + _FIELDS] for first in range(0, len(rest), _FIELDS))
    return Drivers(
        began,
        tuple(LiveDriver(nonce, since, until, place.decode(errors="replace")) for nonce, since, until, place in others),
    )
