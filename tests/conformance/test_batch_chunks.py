"""A batch whose messages are published call by call, with a report for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluicegate import BatchChangedError

MakeQueue = Callable[..., Any]


class Stopped(Exception):
    pass


def numbers(count: int, stop_at: int | None = None) -> Iterator[dict[str, int]]:
    for number in range(count):
        if number == stop_at:
            raise Stopped
        yield {"id": number}


@pytest.mark.parametrize("ahead", [True, False])
def test_a_repeat_rejoins_the_batch_and_the_last_report_seals_it(make_queue: MakeQueue, ahead: bool) -> None:
    queue = make_queue()
    with pytest.raises(Stopped):
        list(queue.publish_chunks(numbers(7, stop_at=5), batch_size=2, batch_id="load", ahead=ahead))
    assert not queue.get_batch("load").status().sealed
    assert queue.get_batch("load").status().total == 4
    queue.claim(2).ack()

    reports = [*queue.publish_chunks(numbers(7), batch_size=2, batch_id="load", ahead=ahead)]

    assert [report.accepted for report in reports] == [2, 2, 2, 1]
    status = queue.get_batch("load").status()
    assert (status.total, status.done, status.waiting, status.sealed) == (7, 2, 5, True)
    assert queue.stats().published == 7


def test_a_reader_that_stops_leaves_the_batch_open(make_queue: MakeQueue) -> None:
    queue = make_queue()

    reports = queue.publish_chunks(numbers(4), batch_size=2, batch_id="load")
    next(reports)
    del reports

    status = queue.get_batch("load").status()
    assert (status.total, status.sealed) == (2, False)


def test_other_messages_under_the_id_of_a_sealed_batch_are_refused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    list(queue.publish_chunks(numbers(4), batch_size=2, batch_id="load"))

    with pytest.raises(BatchChangedError):
        list(queue.publish_chunks(numbers(2), batch_size=2, batch_id="load"))
    assert queue.get_batch("load").status().total == 4
