"""Publish the flights of the year, and those of one month again."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import dagster as dg

from dagster_sluicegate import build_dead_letter_check, build_queue_publish_asset, build_queue_source_asset
from flights_pipeline.settings import CSV, GROUP, MIN_READY, MONTH_AGAIN, TEXT


def read_year() -> Iterator[dict[str, Any]]:
    """Yield the flights of the file: whole numbers become numbers, empty cells become null."""
    with zipfile.ZipFile(CSV) as archive, archive.open(archive.namelist()[0]) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield {
                name: None if cell in ("", "NA") else cell if name in TEXT else int(cell) for name, cell in row.items()
            }


def read_month_again() -> Iterator[dict[str, Any]]:
    """Yield the flights of one month."""
    return (flight for flight in read_year() if flight["month"] == MONTH_AGAIN)


published_year = build_queue_publish_asset(
    spec=dg.AssetSpec(
        "published_year",
        group_name=GROUP,
        kinds={"redis", "csv"},
        description="The flights of the year. The queue refuses those that were published before.",
    ),
    produce=read_year,
)
published_month_again = build_queue_publish_asset(
    spec=dg.AssetSpec(
        "published_month_again",
        deps=[published_year],
        group_name=GROUP,
        kinds={"redis", "csv"},
        description="The flights of one month a second time. The queue refuses all of them.",
    ),
    produce=read_month_again,
)
flights_queue = build_queue_source_asset(
    spec=dg.AssetSpec("flights_queue", deps=[published_year, published_month_again], group_name=GROUP, kinds={"redis"}),
    min_ready=MIN_READY,
)
dead_letters = build_dead_letter_check(asset=flights_queue)
