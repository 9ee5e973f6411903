"""Run the example DAGs as they stand, but for the folders that they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.airflow.deployment import Deployment
from tests.support.project import ROOT

EXAMPLES = ROOT / "example_dags" / "airflow"


@contextmanager
def example(deployment: Deployment, name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the DAGs of an example by their id; its /data is the folder."""
    file = folder / f"{name}.py"
    file.write_text((EXAMPLES / file.name).read_text().replace("/data", str(folder)))
    with deployment.dags([file]) as dags:
        yield dags
