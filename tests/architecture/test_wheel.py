"""What the wheel carries, and that it works from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.project import ROOT

PACKAGES = {
    "sluicegate": ROOT / "src",
    "pyspark_sluicegate": ROOT / "src",
    "airflow_provider_sluicegate": ROOT / "airflow_plugin",
    "dagster_sluicegate": ROOT / "dagster_integration",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("sluicegate-*.whl")
    return built


@pytest.mark.parametrize("package", PACKAGES)
def test_every_source_file_of_a_package_is_in_the_wheel(wheel: Path, package: str) -> None:
    folder = PACKAGES[package]
    sources = {
        str(path.relative_to(folder))
        for pattern in ("*.py", "*.lua", "py.typed")
        for path in (folder / package).rglob(pattern)
    }

    assert f"{package}/py.typed" in sources
    assert sources - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_holds_nothing_but_its_packages(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_airflow_finds_the_provider_and_dg_the_components(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        text = archive.read(name).decode()

    assert "provider_info = airflow_provider_sluicegate.get_provider_info:get_provider_info" in text
    assert "[dagster_dg_cli.registry_modules]\ndagster_sluicegate = dagster_sluicegate.components" in text


def test_the_scripts_load_out_of_the_wheel(wheel: Path) -> None:
    code = "import sluicegate.core.scripts as s; print(s.__file__); print(*sorted(s.load_all()))"
    output = subprocess.check_output(
        [sys.executable, "-c", code], text=True, env={**os.environ, "PYTHONPATH": str(wheel)}
    )
    where, names = output.splitlines()

    assert Path(where).is_relative_to(wheel)
    assert names.split() == sorted(path.stem for path in (ROOT / "src/sluicegate/lua").glob("*.lua"))
