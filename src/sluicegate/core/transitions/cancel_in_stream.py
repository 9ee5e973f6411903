"""A cancel in a stream deletes entries by id, for every group that has not been delivered them yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.keys import StreamKeys
from sluicegate.core.stream_ids import parse_stream_id
from sluicegate.core.transitions.scan import RECEIPT_MS, Step, Steps, Target, target_args
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["cancel_in_stream_call", "cancel_in_stream_operation"]

_PAGE_SIZE = 500


def cancel_in_stream_call(keys: StreamKeys, step: Step, targets: Sequence[Target]) -> Call[list[tuple[bytes, bytes]]]:
    """Prepare one step; step 0 answers which entries exist, with their deduplication keys, and deletes none."""
    markers, args = target_args(keys, targets)
    return Call(
        scripts.load("cancel_in_stream"),
        (keys.stream, keys.counters, keys.published(step.nonce), *markers.buckets),
        (step.number, RECEIPT_MS, markers.chain, markers.plan, markers.fields, *args),
        or_chain(keys.markers, lambda reply: list(zip(reply[::2], reply[1::2], strict=True))),
        again=lambda: cancel_in_stream_call(keys, step, targets),
    )


def cancel_in_stream_operation(
    keys: StreamKeys, nonce: bytes, ids: Iterable[str], *, emits_events: bool = False
) -> Operation[list[str]]:
    """Delete entries by id, and free their deduplication keys. Groups that were delivered one keep their copy.

    Args:
        keys: the keys of the stream.
        nonce: identifies this operation.
        ids: ids of entries.
        emits_events: whether to emit an event per step that deleted something.

    Returns:
        The ids of the entries that were deleted, in the order of `ids`.

    Raises:
        TypeError: `ids` is one str.
        ConfigurationError: one of them is not the id of an entry.
    """
    if isinstance(ids, str):
        raise TypeError("ids must be several message ids, such as a list; put the one id into a list")
    asked = [str(parse_stream_id("id", one)) for one in dict.fromkeys(ids)]
    steps, gone = Steps(nonce), set[str]()
    for first in range(0, len(asked), _PAGE_SIZE):
        wanted = [Target(one.encode()) for one in asked[first : first + _PAGE_SIZE]]
        found = yield cancel_in_stream_call(keys, Step(nonce, 0), wanted)
        if not found:
            continue
        targets = [Target(name, key) for name, key in found]
        deleted = yield from with_markers(cancel_in_stream_call(keys, steps.next(), targets))
        ended = [name.decode() for name, _ in deleted]
        if emits_events and ended:
            message_id = ended[0] if len(ended) == 1 else None
            yield QueueEvent(EventOperation.CANCEL, EventOutcome.SUCCESS, keys.name, len(ended), message_id=message_id)
        gone.update(ended)
    return [one for one in asked if one in gone]
