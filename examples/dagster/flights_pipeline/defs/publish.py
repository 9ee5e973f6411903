"""Publish the flights of the year, and those of one month again."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import dagster as dg

from dagster_sluicegate import RedisQueueResource, build_dead_letter_check, build_queue_source_asset
from flights_pipeline.settings import CSV, MIN_READY, MONTH_AGAIN, TEXT

GROUP = "flights"


def flights(month: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the flights of the file, or of one month: whole numbers become numbers, empty cells become null."""
    with zipfile.ZipFile(CSV) as archive, archive.open(archive.namelist()[0]) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            if month in (None, row["month"]):
                yield {
                    name: None if cell in ("", "NA") else cell if name in TEXT else int(cell)
                    for name, cell in row.items()
                }


def publish(queue: RedisQueueResource, month: str | None = None) -> dg.MaterializeResult[Any]:
    """Publish flights and report how many the queue accepted."""
    with queue.get_queue() as flights_queue:
        report = flights_queue.publish_many(flights(month))
    return dg.MaterializeResult(metadata={"accepted": report.accepted, "duplicates": report.duplicates})


@dg.asset(group_name=GROUP, kinds={"redis", "csv"})
def published_year(queue: RedisQueueResource) -> dg.MaterializeResult[Any]:
    """Publish the flights of the year; the queue refuses a flight that was published before."""
    return publish(queue)


@dg.asset(group_name=GROUP, kinds={"redis", "csv"}, deps=[published_year])
def published_month_again(queue: RedisQueueResource) -> dg.MaterializeResult[Any]:
    """Publish the flights of one month a second time; the queue refuses all of them."""
    return publish(queue, MONTH_AGAIN)


flights_queue = build_queue_source_asset(
    spec=dg.AssetSpec("flights_queue", deps=[published_year, published_month_again], group_name=GROUP, kinds={"redis"}),
    min_ready=MIN_READY,
)
dead_letters = build_dead_letter_check(asset=flights_queue)
