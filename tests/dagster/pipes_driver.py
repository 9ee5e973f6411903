"""A driver that a Dagster step starts: it drains without Dagster, writes a file per lease, and reports.

Usage: python -m tests.dagster.pipes_driver URL QUEUE FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dagster_pipes import open_dagster_pipes

from sluicegate import DrainContext, Message, RedisMessageQueue, drain


class Missing:
    """A finder that comes first and knows no Dagster, as on a machine that has `dagster-pipes` only."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("dagster", "dagster_shared"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(url: str, name: str, folder: Path) -> None:
    from dagster_sluicegate import report_drain

    def store(batch: list[Message], ctx: DrainContext) -> None:
        orders = [message.json() for message in batch]
        if any(order.get("kills") for order in orders) and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if any(order.get("fails") for order in orders) and not (folder / "mended").exists():
            raise ValueError("TEXT of the handler")
        ctx.output_file(folder, ".json").write_text(json.dumps([order["n"] for order in orders]))

    queue = RedisMessageQueue(name, url=url)
    with open_dagster_pipes() as pipes:
        (folder / "extras").write_text(json.dumps(dict(pipes.extras)))
        report_drain(
            pipes,
            queue,
            lambda run_id: drain(queue, store, run_id=run_id, remember_empty=False, batch_size=10, lease_seconds=30),
        )


if __name__ == "__main__":
    sys.meta_path.insert(0, Missing())  # type: ignore[arg-type]
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
