"""Runs the program in Node that publishes to a stream and consumes from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.project import ROOT

MISSING = "streams with Node: no node, or no ioredis in build/node (bash scripts/node.sh installs it)"
PROGRAM = Path(__file__).parent / "consumer.cjs"
IOREDIS = ROOT / "build" / "node" / "node_modules" / "ioredis"


def is_there() -> bool:
    """Return whether this machine has Node and its client of Redis."""
    return shutil.which("node") is not None and IOREDIS.is_dir()


class Node:
    """Calls the program on one server and stream."""

    def __init__(self, socket: str, stream: str) -> None:
        self._command = ["node", str(PROGRAM), socket, stream]

    def __call__(self, command: str, **given: Any) -> Any:
        done = subprocess.run(
            [*self._command, command, json.dumps(given)],
            env=os.environ | {"SLUICEGATE_IOREDIS": str(IOREDIS)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
