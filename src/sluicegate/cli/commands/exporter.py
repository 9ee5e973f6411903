"""Serves the metrics of queues, streams and groups for Prometheus."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.places import Targets, configured_places
from sluicegate.cli.serving import check_address, needs_extra, one_redis

__all__ = ["exporter"]


def exporter(
    cli: Cli,
    targets: Targets,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Its port; 0 for a free one.")] = 9464,
    refresh_seconds: Annotated[
        float, typer.Option("--refresh-seconds", help="How often all places are searched for again.")
    ] = 60.0,
    max_places: Annotated[int, typer.Option("--max-places", min=1, help="Most places to read.")] = 2000,
) -> None:
    """Serve the metrics of queues, streams and groups at /metrics, for Prometheus, until Ctrl-C or SIGTERM.

    Every scrape reads Redis anew, one command per place. It listens on this machine only unless --host says otherwise.
    """
    with needs_extra("metrics"):
        from sluicegate.metrics import serve

    check_address(host, port)
    wanted = targets or configured_places(cli)
    with serve(
        gateway=one_redis(cli, wanted),
        places=[target.place for target in wanted] or None,
        refresh_seconds=refresh_seconds,
        max_places=max_places,
        host=host,
        port=port,
    ) as running:
        cli.output.show({"url": running.url}, [("metrics", running.url)])
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
