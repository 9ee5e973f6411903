"""A publish to a stream appends messages for all of its groups, unless their deduplication key is held."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain
from sluicegate.core.keys import StreamKeys
from sluicegate.core.transitions.eviction import EvictionCheck
from sluicegate.core.transitions.groups import TEMPORARY_PREFIX
from sluicegate.core.transitions.publish import TOO_OLD, Batch, Published, publish_operation
from sluicegate.core.transitions.trim import Trimmed, TrimRules, trim_step

__all__ = ["Upkeep", "publish_to_stream_call", "publish_to_stream_operation", "wake_groups_call"]

_WAKEUPS_PER_CALL = 500
_IDLE_TRIM_SECONDS = 0.1  # until the next trim after one that could remove nothing
_MAX_AGE_CHECK_SECONDS = 60.0
_EXPIRY_CHECK_SECONDS = 60.0  # of temporary groups, which trims delete
_log = logging.getLogger("sluicegate")


def publish_to_stream_call(
    keys: StreamKeys, batch: Batch, wakeups: Mapping[bytes, bytes], *, age_seconds: float
) -> Call[Published]:
    """Prepare the call that appends a batch which was first sent `age_seconds` ago.

    Args:
        keys: the keys of the stream.
        batch: the messages.
        wakeups: the wake-up key of each group that the caller knows, by the group's name.
        age_seconds: age of the batch.
    """
    size, markers = len(batch.parts), keys.markers.locate(batch.deduplication_keys)
    return Call(
        scripts.load("publish_to_stream"),
        (
            keys.stream,
            keys.counters,
            keys.published(batch.id),
            *wakeups.values(),
            *markers.buckets,
        ),
        [
            batch.id,
            ceil(age_seconds * 1000),
            ceil(batch.oldest_seconds * 1000),
            ceil(batch.window_seconds * 1000),
            ceil(batch.receipt_seconds * 1000),
            batch.kind,
            len(wakeups),
            markers.chain,
            markers.plan,
            markers.fields,
            *wakeups,
            *batch.parts,
        ],
        or_chain(keys.markers, lambda reply: _decode(reply, size)),
        elapsed_arg=1,
        then=batch.durability.command(),
        again=lambda: publish_to_stream_call(keys, batch, wakeups, age_seconds=age_seconds),
    )


def wake_groups_call(wakeups: tuple[bytes, ...]) -> Call[int]:
    """Prepare the call that wakes a consumer of each of these groups."""
    return Call(scripts.load("wake_groups"), wakeups, (), int)


@dataclass(slots=True)
class Upkeep:
    """What one object that publishes to a stream knows between two publishes: its groups, and when to trim.

    Attributes:
        keys: the keys of the stream.
        rules: when it is too long.
        clock: in seconds.
        wakeups: the wake-up key of each group, by the group's name.
    """

    keys: StreamKeys
    rules: TrimRules
    clock: Callable[[], float]
    wakeups: dict[bytes, bytes] = field(default_factory=dict)
    _next_by_length: float = 0
    _next_by_age: float = 0

    def after_publish(self, published: Published) -> Operation[int]:
        """Wake groups that this object did not know, and trim when it is time. What fails here has no effect.

        Returns:
            The number of messages that were removed before every group had finished them.
        """
        try:
            if published.groups is not None:
                yield from self._learn(published.groups)
            if self._must_trim(published.length):
                return (yield from self._trim())
        except Exception as error:  # noqa: BLE001  (the publish itself succeeded)
            _log.warning("stream %r could not be trimmed: %s", self.keys.name, type(error).__name__)
        return 0

    def _learn(self, groups: list[bytes]) -> Operation[None]:
        known, self.wakeups = self.wakeups, {name: self.keys.wakeup_of(name) for name in groups}
        missed = [wakeup for name, wakeup in self.wakeups.items() if name not in known]
        for first in range(0, len(missed), _WAKEUPS_PER_CALL):
            yield replace(wake_groups_call(tuple(missed[first : first + _WAKEUPS_PER_CALL])), patience_seconds=0)

    def _must_trim(self, length: int) -> bool:
        rules, now = self.rules, self.clock()
        checks_age = rules.max_age_seconds is not None or self._knows_temporary_groups
        if checks_age and now >= self._next_by_age:
            return True
        if rules.max_length is None:
            return False
        # Redis removes whole nodes of about a hundred entries at once, and a call for fewer would remove none.
        slack = min(max(100, rules.max_length // 100), 10_000)
        return length >= rules.max_length + slack and now >= self._next_by_length

    @property
    def _knows_temporary_groups(self) -> bool:
        prefix = TEMPORARY_PREFIX.encode()
        return any(name.startswith(prefix) for name in self.wakeups)

    def _trim(self) -> Operation[int]:
        age = self.rules.max_age_seconds
        self._next_by_age = self.clock() + (
            _EXPIRY_CHECK_SECONDS if age is None else min(max(1.0, age / 20), _MAX_AGE_CHECK_SECONDS)
        )
        done: Trimmed = yield from trim_step(self.keys, self.rules, patience_seconds=0)
        if not done.trimmed:
            self._next_by_length = self.clock() + _IDLE_TRIM_SECONDS
        return done.unfinished


def publish_to_stream_operation(
    keys: StreamKeys,
    batch: Batch,
    upkeep: Upkeep,
    *,
    clock: Callable[[], float],
    emits_events: bool = False,
    born: float | None = None,
    eviction: EvictionCheck | None = None,
) -> Operation[Published]:
    """Publish one batch to a stream as `publish_operation` does, then wake its groups and trim it if it is time.

    Args:
        keys: the keys of the stream.
        batch: the messages.
        upkeep: of the object that publishes.
        clock: the gateway's clock, in seconds.
        emits_events: whether to emit events of the publish.
        born: when the batch was first sent, if it was sent before.
        eviction: the check of the server's eviction policy, None when it is not wanted.
    """
    call = publish_to_stream_call(keys, batch, upkeep.wakeups, age_seconds=0)
    published = yield from publish_operation(
        keys, batch, clock=clock, emits_events=emits_events, born=born, eviction=eviction, call=call
    )
    unfinished = yield from upkeep.after_publish(published)
    return replace(published, dropped=unfinished) if unfinished else published


def _decode(reply: list[Any], size: int) -> Published:
    if reply[0] == TOO_OLD:
        return Published(TOO_OLD, {})
    accepted, first, repeated, own, length = reply[:5]
    groups = reply[5] if len(reply) > 5 else None
    stamp, _, number = first.decode().partition("-")
    if not repeated and not own:
        begin = int(number)
        return Published(accepted, {}, ids=[f"{stamp}-{begin + i}" for i in range(size)], length=length, groups=groups)
    duplicates = {int(repeated[i]): repeated[i + 1].decode(errors="replace") for i in range(0, len(repeated), 2)}
    known = {int(own[i]): own[i + 1].decode() for i in range(0, len(own), 2)} | duplicates
    following = int(number or 0)
    ids = []
    for position in range(size):
        if position in known:
            ids.append(known[position])
        else:
            ids.append(f"{stamp}-{following}")
            following += 1
    return Published(accepted, duplicates, ids=ids, length=length, groups=groups)
