"""Calls of a stream as the tests of repeats, of wrong types and of full memory make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from sluicegate.core.call import Call
from sluicegate.core.entry import client_part
from sluicegate.core.keys import StreamKeys
from sluicegate.core.transitions.cancel_in_stream import cancel_in_stream_call
from sluicegate.core.transitions.groups import create_group_call, delete_group_call, keep_group_call, stream_info_call
from sluicegate.core.transitions.peek_in_stream import peek_in_stream_call
from sluicegate.core.transitions.publish import Batch, Published
from sluicegate.core.transitions.publish_to_stream import publish_to_stream_call, wake_groups_call
from sluicegate.core.transitions.replay import replay_call
from sluicegate.core.transitions.scan import Step, Target
from sluicegate.core.transitions.trim import TrimRules, trim_call
from tests.support.core_calls import Core

STREAM = StreamKeys("orders")
GROUP = STREAM.of_group("g")
WAKEUPS = {b"g": GROUP.wakeup}


def publish(
    batch: str, *names: str, keyed: bool = True, receipt: float = 0, kind: bytes = b"1", age: float = 0
) -> Call[Published]:
    parts = [client_part(b"", name.encode() if keyed else b"", b"", name.encode()) for name in names]
    made = Batch(
        batch.encode(),
        parts,
        [name.encode() for name in names] if keyed else [],
        window_seconds=3600,
        receipt_seconds=receipt,
        oldest_seconds=500,
        kind=kind,
        in_stream=True,
    )
    return publish_to_stream_call(STREAM, made, WAKEUPS, age_seconds=age)


def create(core: Core, *, life: float = 0, start: str = "beginning", position: str = "0-0") -> Call[Any]:
    return create_group_call(GROUP, b"n", start, position, life_seconds=life)


def publish_to_stream(core: Core) -> Call[Any]:
    core.do(create(core))
    core.do(publish("earlier", "b"))
    return publish("batch", "a", "b", "c", "a")


def publish_to_stream_with_a_receipt(core: Core) -> Call[Any]:
    core.do(create(core))
    core.do(publish("earlier", "b"))
    return publish("batch", "a", "b", "a", receipt=600, kind=b"2")


def publish_to_stream_without_keys(core: Core) -> Call[Any]:
    return publish("batch", "a", "a", keyed=False, receipt=600)


def publish_to_stream_too_late(core: Core) -> Call[Any]:
    return publish("batch", "a", age=501)


def create_at_the_end(core: Core) -> Call[Any]:
    core.do(publish("earlier", "a"))
    return create(core, start="end", position="$")


def create_what_exists(core: Core) -> Call[Any]:
    core.do(create_group_call(GROUP, b"earlier", "end", "$"))
    return create(core)


def keep(core: Core) -> Call[Any]:
    core.do(create(core, life=60))
    record = core.client.hget(STREAM.groups, "g")
    assert isinstance(record, bytes)
    # A group that expires far in the future, so that the repeat changes nothing.
    core.client.hset(STREAM.groups, "g", record.rpartition(b"\x1f")[0] + b"\x1f9000000000000")
    return keep_group_call(GROUP)


def mark_for_deletion(core: Core) -> Call[Any]:
    core.do(create(core))
    return delete_group_call(GROUP)


def delete(core: Core) -> Call[Any]:
    mark = core.do(mark_for_deletion(core)).mark
    return delete_group_call(GROUP, mark)


def look_at_a_stream(core: Core) -> Call[Any]:
    core.do(publish_to_stream(core))
    return stream_info_call(STREAM)


def trim(core: Core) -> Call[Any]:
    core.do(publish("earlier", *"abcdefgh"))
    core.do(create(core))
    core.client.xgroup_setid(STREAM.stream, "g", core.client.xrange(STREAM.stream)[5][0])
    return trim_call(STREAM, TrimRules(max_length=4), exact=True)


def trim_unfinished(core: Core) -> Call[Any]:
    core.do(publish("earlier", *"abcdefgh"))
    core.do(create(core))
    return trim_call(STREAM, TrimRules(max_length=4, trim_unfinished=True), exact=True)


def replay(core: Core) -> Call[Any]:
    core.do(publish("earlier", *"abcd"))
    core.do(create_at_the_end(core))
    return replay_call(GROUP, b"n2", "0-0")


def replay_forward(core: Core) -> Call[Any]:
    core.do(create(core))
    return replay_call(GROUP, b"n2", "5-5")


def replay_nothing(core: Core) -> Call[Any]:
    core.do(publish("earlier", "a"))
    return replay_call(GROUP, b"n2", "0-0")


def named(core: Core) -> list[Target]:
    core.do(publish("earlier", *"abc"))
    ids = [name for name, _ in core.client.xrange(STREAM.stream)]
    return [Target(ids[0], b"a"), Target(b"1-1"), Target(ids[1])]


def ask_for_keys(core: Core) -> Call[Any]:
    return cancel_in_stream_call(STREAM, Step(b"n", 0), named(core))


def cancel(core: Core) -> Call[Any]:
    return cancel_in_stream_call(STREAM, Step(b"n", 1), named(core))


def peek(core: Core) -> Call[Any]:
    core.do(publish("earlier", *"abc"))
    return peek_in_stream_call(STREAM, "0-0", 2)


def wake(core: Core) -> Call[Any]:
    return wake_groups_call((GROUP.wakeup, STREAM.of_group("h").wakeup))


def run_all(client: redis.Redis, do: Callable[[Call[Any]], Any]) -> None:
    """Make every call of these cases through `do`, each on a stream of its own."""
    core = Core(client)
    core.do = do  # type: ignore[method-assign]
    for prepare in CASES:
        client.delete(*client.keys("sluicegate:*:stream*"), *client.keys("sluicegate:*:group:*"), "none")
        do(prepare(core))


CASES = [
    publish_to_stream, publish_to_stream_with_a_receipt, publish_to_stream_without_keys, publish_to_stream_too_late,
    create, create_at_the_end, create_what_exists, keep, mark_for_deletion, delete, look_at_a_stream, trim,
    trim_unfinished, peek, replay, replay_forward, replay_nothing, ask_for_keys, cancel, wake,
]  # fmt: skip
TOLD_ONCE = (
    publish_to_stream,
    publish_to_stream_with_a_receipt,
    publish_to_stream_without_keys,
    delete,
    trim,
    trim_unfinished,
)
TYPES = {
    "publish_to_stream": (publish_to_stream, "stream counters others"),
    "publish_to_stream with a receipt": (publish_to_stream_with_a_receipt, "receipt"),
    "create_group": (create, "stream groups receipt"),
    "keep_group": (keep, "groups"),
    "delete_group": (delete, "stream groups leases counters"),
    "stream_info": (look_at_a_stream, "stream counters groups"),
    "trim": (trim, "stream counters groups"),
    "peek_in_stream": (peek, "stream"),
    "replay": (replay, "stream receipt wakeup"),
    "cancel_in_stream": (cancel, "stream counters receipt buckets"),
    "wake_groups": (wake, "wakeups"),
}
