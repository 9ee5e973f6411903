"""Read the example DAGs where nothing may be reached or looked up, and print what was found as the last line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.airflow.examples import EXAMPLES

HEAVY = ("redis", "pyspark", "pyarrow", "pandas", "openlineage")
REFUSED = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen")


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what goes to a server or starts one."""
    if event in REFUSED:
        raise RuntimeError(f"reading a DAG file led to {event}")


def main() -> None:
    """Read the files."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag  # type: ignore[no-redef]
    from airflow.sdk import Connection

    before = set(sys.modules)
    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

    def look_up(*_: Any, **__: Any) -> None:
        raise RuntimeError("reading a DAG file led to a lookup of a connection")

    Connection.get = RedisQueueHook.get_connection = look_up  # type: ignore[method-assign, assignment]
    sys.addaudithook(refuse)
    bag = DagBag(EXAMPLES, collect_dags=False)
    bag.collect_dags(EXAMPLES)
    dags: dict[str, list[str]] = {}
    for dag_id, dag in sorted(bag.dags.items()):
        dags.setdefault(Path(dag.fileloc).stem, []).append(dag_id)
    heavy = sorted(set(HEAVY) & (set(sys.modules) - before))
    print(json.dumps({"errors": bag.import_errors, "dags": dags, "heavy": heavy}))


if __name__ == "__main__":
    main()
