"""The eight lines that a newcomer runs first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from example_dags.demo.paths import PROJECT
from sluicegate.embedded import stop_server

QUICKSTART = PROJECT / "example_dags" / "quickstart.py"
EXPECTED = """\
published 900, refused 100 duplicates, 900 are ready
leased and acked 900 orders over 4,045.50; 0 left in flight
"""


def test_it_says_the_same_every_time_and_needs_neither_java_nor_airflow(tmp_path: Path) -> None:
    shutil.copy(QUICKSTART, tmp_path)
    blocked = "import sys; sys.modules.update(dict.fromkeys(['airflow', 'dagster', 'pyspark'])); import runpy; "
    command = [sys.executable, "-c", f"{blocked} runpy.run_path('quickstart.py')"]
    try:
        for _ in range(2):
            said = subprocess.check_output(command, cwd=tmp_path, text=True, env={"PATH": ""}, timeout=60)
            assert said == EXPECTED
    finally:
        stop_server(tmp_path / "build" / "quickstart")
