"""A handler whose module executors cannot import is sent to them by value; every other module stays a reference."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.cloudpickle import cloudpickle

from sluicegate import RedisMessageQueue
from sluicegate.spark import drain
from sluicegate.spark.draining import pickling
from tests.draining.helpers import Numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LoadFile = Callable[[str, str], ModuleType]
DAG_FILE = """
import functools
import json
from dataclasses import dataclass
from pathlib import Path

import {helper} as helper

FOLDER = Path({folder!r})


@dataclass(frozen=True)
class Order:
    n: int

    def doubled(self):
        return Order(helper.double(self.n))


def write(batch, ctx, suffix=".json"):
    orders = [Order(message.json()["n"]).doubled() for message in batch]
    ctx.output_file(FOLDER, suffix).write_text(json.dumps([order.n for order in orders]))


class Writer:
    def __call__(self, batch, ctx):
        write(batch, ctx)


process = functools.partial(write, suffix=".json")
writer = Writer()
"""


@pytest.fixture
def load_file(tmp_path: Path) -> Iterator[LoadFile]:
    """Load a file as Airflow loads DAG files: under a name by which nobody else can import it."""
    names = []

    def load(name: str, text: str) -> ModuleType:
        path = tmp_path / "dags" / f"{name.rpartition('_')[2]}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


@pytest.fixture
def dag_file(load_file: LoadFile, tmp_path: Path) -> ModuleType:
    helper = "unusual_prefix_77aa_helper"
    load_file(helper, "def double(n):\n    return 2 * n\n")
    return load_file("unusual_prefix_0b1c_pipeline", DAG_FILE.format(helper=helper, folder=str(tmp_path)))


@pytest.mark.parametrize("name", ["write", "process", "writer"])
def test_a_handler_in_a_dag_file_runs_on_executors(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, dag_file: Any, name: str
) -> None:
    expected = numbers(20)
    summary = drain(spark, queue, getattr(dag_file, name), partitions=1, batch_size=10)
    assert summary.acked == 20
    written = [n for file in tmp_path.glob("*.json") for n in json.loads(file.read_text())]
    assert sorted(written) == [2 * n for n in expected]


def test_modules_that_others_can_import_stay_references(dag_file: Any) -> None:
    """Executors use their own copy of an installed package, also where a function sent by value refers to it."""
    for function in (json.dumps, RedisMessageQueue, Mapping, Decimal, Path, os.path.join, PosixPath, np.linalg.norm):
        assert len(pickling.dumps(function)) < 200, function
    shipped = pickling.dumps(dag_file.write)
    assert b"Order" in shipped
    assert b"JSONEncoder" not in shipped
    assert cloudpickle.list_registry_pickle_by_value() & {dag_file.__name__, "json"} == set(), "taken back"


def test_a_file_whose_name_belongs_to_an_installed_package_goes_by_value(load_file: LoadFile) -> None:
    before = sys.modules.get("statistics")
    module = load_file("statistics", "def process(batch):\n    return 'a text of this file'\n")
    try:
        assert not pickling.is_importable(module)
        assert b"a text of this file" in pickling.dumps(module.process)
    finally:
        if before is not None:
            sys.modules["statistics"] = before


def test_a_copy_that_was_sent_with_the_job_keeps_a_package_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`addPyFile` puts its copy in front of the package that this process has imported already."""
    package = tmp_path / "sluicegate"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert pickling.is_importable(sys.modules["sluicegate"])
    assert pickling.is_importable(sys.modules["sluicegate.queue"])


def test_a_folder_of_the_same_name_does_not_make_a_file_importable(
    load_file: LoadFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unusual_orders").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not pickling.is_importable(load_file("unusual_orders", ""))


def test_a_handler_of_a_script_runs_in_another_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom sluicegate.spark.draining import pickling\n"
        "FACTOR = 3\ndef process(batch):\n    return [FACTOR * n for n in batch]\n"
        "sys.stdout.buffer.write(pickling.dumps(process))\n"
    )
    shipped = subprocess.run([sys.executable, script], check=True, capture_output=True).stdout
    assert pickle.loads(shipped)([1, 2]) == [3, 6]  # noqa: S301  (our own bytes)


def test_every_importable_module_is_seen_as_such() -> None:
    """What is loaded here came by its name, but for the main module and what packages made without a file."""
    strange = [
        name
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and not pickling.is_importable(module)
    ]
    assert [name for name in strange if not name.startswith(("tests", "conftest", "__m"))] == []
