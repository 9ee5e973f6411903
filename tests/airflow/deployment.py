"""One Airflow deployment for a run of the tests: a home of its own, SQLite, migrated once."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

_CONFIGURATION = """
[core]
dags_folder = {home}/dags
load_examples = False
simple_auth_manager_all_admins = True
[database]
sql_alchemy_conn = sqlite:///{home}/airflow.db
[workers]
min_heartbeat_interval = 1
[logging]
base_log_folder = {home}/logs
"""


def choose_home() -> Path:
    """Give Airflow a home for this process. Airflow reads where it lives when it is imported, so this comes first."""
    if "airflow" in sys.modules:
        raise RuntimeError("airflow was imported before its home for the tests was chosen; import it inside functions")
    home = Path(tempfile.mkdtemp(prefix="sluicegate-airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "dags").mkdir()
    (home / "airflow.cfg").write_text(_CONFIGURATION.format(home=home))
    os.environ["AIRFLOW_HOME"] = str(home)
    return home


@dataclass(frozen=True)
class Deployment:
    """What tests do with it."""

    home: Path

    def migrate(self) -> None:
        """Make the tables."""
        from airflow.utils.db import initdb

        initdb()

    @contextmanager
    def dags(self, files: Iterable[Path]) -> Iterator[dict[str, Any]]:
        """Put DAG files into the folder of DAGs, and yield the DAGs in it by their id."""
        try:
            from airflow.dag_processing.dagbag import DagBag
        except ImportError:  # Airflow 3.1
            from airflow.models.dagbag import DagBag  # type: ignore[no-redef]

        targets = [Path(shutil.copy(file, self.home / "dags")) for file in files]
        try:
            bag = DagBag(self.home / "dags")
            assert bag.import_errors == {}
            yield bag.dags
        finally:
            for target in targets:
                target.unlink()

    def rendered(self, run: DagRun, task_id: str) -> dict[str, Any]:
        """Return the rendered fields of a task, as the database keeps them."""
        from airflow.models.renderedtifields import RenderedTaskInstanceFields

        (instance,) = [instance for instance in run.get_task_instances() if instance.task_id == task_id]
        fields = RenderedTaskInstanceFields.get_templated_fields(instance)
        assert fields is not None
        return fields

    def stored(self) -> bytes:
        """Everything Airflow has written: its database and its logs."""
        files = [*self.home.glob("airflow.db*"), *(self.home / "logs").rglob("*")]
        # Another process reads them: closing a file of SQLite here would drop the locks of this process's connections,
        # and the next writer could damage the database.
        return subprocess.check_output(["cat", *(file for file in files if file.is_file())])


def states(run: DagRun) -> dict[str, str | None]:
    """States of a run's tasks; mapped ones are numbered."""
    return {
        instance.task_id if instance.map_index < 0 else f"{instance.task_id}[{instance.map_index}]": instance.state
        for instance in run.get_task_instances()
    }


def xcoms(run: DagRun) -> Mapping[str, Any]:
    """Return what the tasks of a run returned, read from the database; those of mapped tasks in a list."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    found: dict[str, Any] = {}
    with create_session() as session:
        query = XComModel.get_many(run_id=run.run_id, key="return_value", dag_ids=run.dag_id)
        for row in session.scalars(query.order_by(None).order_by(XComModel.task_id, XComModel.map_index)):
            value = XComModel.deserialize_value(row)
            if row.map_index < 0:
                found[row.task_id] = value
            else:
                found.setdefault(row.task_id, []).append(value)
    return found
