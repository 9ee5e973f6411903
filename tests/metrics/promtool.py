"""Prometheus's own checker of rules, where the machine has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

MISSING = "alert rules: no promtool (apt-get install prometheus has it)"


def is_there() -> bool:
    """Return whether this machine has promtool."""
    return shutil.which("promtool") is not None


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder."""
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
