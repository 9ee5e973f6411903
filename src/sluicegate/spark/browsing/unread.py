"""Read what a group of a stream has not been delivered, cut into parts by the ids of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from sluicegate.consumer import QueueConsumer
from sluicegate.core.keys import GroupKeys
from sluicegate.message import Message
from sluicegate.spark._access import run_call
from sluicegate.spark.transitions import GroupPage, browse_group_call

__all__ = ["Stretch", "pages", "plan_stretches"]

_MAX_PER_PAGE = 2000
_PAGE_BYTES = 4 * 1024 * 1024
_MAX_PER_LOOK = 10_000
_LOOK_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Stretch(InputPartition):
    """Names what one task reads of a group: a stretch of the stream.

    Positions would not do: a stream is found by ids, and what precedes them would be read again for every page.

    Attributes:
        after: the id before the stretch; "" for the id that the group read last.
        sequence: the sequence number of the message with that id.
        last: the greatest id in it; "" for the end of the stream.
        count: the largest number of messages.
    """

    after: str
    sequence: int
    last: str
    count: int


def plan_stretches(queue: QueueConsumer, size: int, parts: int, limit: int) -> list[Stretch]:
    """Cut what a group has not read into stretches of `size` messages.

    Args:
        queue: the group.
        size: messages of a stretch.
        parts: the number of stretches; the last one also shows later messages.
        limit: the largest number of messages of all stretches.
    """
    stretches: list[Stretch] = []
    start = GroupPage(0, "")
    while len(stretches) < parts - 1:
        end, left = start, size
        while left > 0 and not end.ended:
            end = _page(queue, end, "", min(left, _MAX_PER_LOOK), whole=False)
            left -= end.count
        stretches.append(Stretch(start.last_id, start.sequence, end.last_id, size))
        start = end
    return [*stretches, Stretch(start.last_id, start.sequence, "", limit - len(stretches) * size)]


def pages(queue: QueueConsumer, stretch: Stretch) -> Iterator[list[Message]]:
    """Yield a stretch page by page, each of about 4 MiB, without what the group has read since the plan."""
    page, left = GroupPage(stretch.sequence, stretch.after), stretch.count
    while left > 0 and not page.ended:
        page = _page(queue, page, stretch.last, min(left, _MAX_PER_PAGE), whole=True)
        left -= page.count
        if page.count:
            yield [Message(message) for message in page.messages]


def _page(queue: QueueConsumer, before: GroupPage, last: str, most: int, *, whole: bool) -> GroupPage:
    keys = queue.session.keys
    assert isinstance(keys, GroupKeys)
    call = browse_group_call(
        keys,
        before.last_id,
        before.sequence,
        last,
        max_values=most,
        max_bytes=_PAGE_BYTES if whole else _LOOK_BYTES,
        whole=whole,
    )
    return run_call(queue, call)
