"""`python -m sluicegate.spark.pack`: one reproducible file that brings everything to executors without the package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluicegate import ConfigurationError, RedisMessageQueue
from sluicegate.spark import pack as pack_module
from sluicegate.spark.pack import main, pack
from tests.draining.helpers import Numbers
from tests.spark.shipping import bare_environment, spark_defaults, submit_orders
from tests.support.project import ROOT

JOBS = """
import redis, sluicegate, tenacity

def store(batch, ctx):
    numbers = [message.json()["n"] for message in batch]
    with open(FOLDER + "/" + ctx.lease_key, "w") as output:
        places = [module.__file__ for module in (sluicegate, redis, tenacity)]
        output.write("\\n".join([*places, *map(str, numbers)]))
"""


def test_two_runs_make_the_same_bytes_and_nothing_of_this_machine(tmp_path: Path) -> None:
    first, second = pack(tmp_path / "a.zip"), pack(tmp_path / "b.zip")

    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]
    with zipfile.ZipFile(first) as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    assert names == sorted(set(names))
    assert {(entry.date_time, entry.external_attr >> 16, entry.compress_type) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), 0o100644, zipfile.ZIP_STORED)
    }
    assert {"sluicegate/lua/claim.lua", "pyspark_sluicegate/__init__.py", "redis/client.py", "tenacity/wait.py"} < set(
        names
    )
    assert not [name for name in names if name.endswith((".pyc", ".so", "RECORD", "direct_url.json"))]


def test_an_interpreter_without_packages_imports_all_of_it_and_reads_its_lua(tmp_path: Path) -> None:
    archive = pack(tmp_path / "out.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import sluicegate, sluicegate.spark, redis, tenacity; "
        "from sluicegate import RedisMessageQueue; from sluicegate.core import scripts; "
        "RedisMessageQueue('q', url='redis://h').spec(); print(len(scripts.load('claim').text), redis.__file__)"
    )
    python = getattr(sys, "_base_executable", sys.executable)

    said = subprocess.run(
        [python, "-I", "-S", "-c", program], text=True, capture_output=True, check=True, cwd=tmp_path
    ).stdout

    size, place = said.split()
    assert (int(size) > 1000, place.startswith(str(archive))) == (True, True)


def test_its_dependencies_are_those_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert [re.match(r"[\w-]+", requirement)[0] for requirement in declared] == list(pack_module._DEPENDENCIES)  # type: ignore[index]


def test_the_program_says_what_it_wrote_and_refuses_another_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.zip"
    assert main([str(out), "--without-dependencies"]) == 0
    assert re.fullmatch(rf"{out} {out.stat().st_size} bytes sha256:[0-9a-f]{{64}}\n", capsys.readouterr().out)
    with zipfile.ZipFile(out) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"sluicegate", "pyspark_sluicegate"}

    assert main([str(tmp_path / "out.egg")]) == 2
    assert "must end in .zip, not 'out.egg'" in capsys.readouterr().err


def test_a_compiled_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_module, "_DEPENDENCIES", ("orjson",))
    with pytest.raises(ConfigurationError, match=r"orjson .* is compiled here"):
        pack(tmp_path / "out.zip")
    monkeypatch.setattr(pack_module, "_DEPENDENCIES", ("no-such-package",))
    with pytest.raises(ConfigurationError, match="no-such-package is not installed here"):
        pack(tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.full
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "standalone"])
def test_executors_that_have_nothing_installed_drain_with_the_file(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, master: str
) -> None:
    from tests.spark.faults.standalone import StandaloneCluster

    numbers(60)
    environment = bare_environment(spark_defaults(tmp_path))
    conf = {
        "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
        "spark.executor.memory": "512m",
        "spark.executor.instances": "2",
    }
    with ExitStack() as stack:
        if master == "standalone":
            (tmp_path / "cluster").mkdir()
            master = stack.enter_context(StandaloneCluster(tmp_path / "cluster")).url
        done = submit_orders(queue, JOBS, pack(tmp_path / "out.zip"), environment, master=master, conf=conf)

    assert done.code == 0, done.errors
    assert done.summary["acked"] == 60
    assert {int(n) for lines in done.written for n in lines[3:]} == set(range(60))
    packages = ("sluicegate", "redis", "tenacity")
    assert all(f"out.zip/{package}/" in lines[at] for lines in done.written for at, package in enumerate(packages))
