"""What goes to the package index: the source archive, the wheel, and the two names without code."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import sluicegate
from tests.support.project import ROOT, files

ALIASES = {"airflow-provider-sluicegate": "airflow", "dagster-sluicegate": "dagster"}
ROOMS = ("src", "airflow_plugin", "dagster_integration")


def build(folder: Path, *arguments: str, cwd: Path = ROOT) -> None:
    """Build without a network, with the backend that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *arguments]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    for name in ALIASES:
        build(folder, "--target", "wheel", cwd=ROOT / "packages" / name)
    return folder


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the source archive unpacks to."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built / f"sluicegate-{sluicegate.__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"sluicegate-{sluicegate.__version__}"


def wheel(folder: Path, name: str) -> zipfile.ZipFile:
    (path,) = folder.glob(f"{name.replace('-', '_')}-*.whl")
    return zipfile.ZipFile(path)


def part(archive: zipfile.ZipFile, name: str) -> str:
    (found,) = [path for path in archive.namelist() if path.endswith(f".dist-info/{name}")]
    return archive.read(found).decode()


def metadata(archive: zipfile.ZipFile) -> Message:
    return message_from_string(part(archive, "METADATA"))


def test_the_version_stands_in_one_file() -> None:
    version = sluicegate.__version__
    named = [
        path.relative_to(ROOT).as_posix()
        for path in files()
        if path.suffix in (".py", ".toml")
        and re.search(rf"""\b(?:version|__version__)["']?\s*[:=]+\s*["']{version}["']""", path.read_text())
    ]
    assert named == ["src/sluicegate/__init__.py"]


def test_the_changelog_has_a_section_for_this_version_on_top() -> None:
    sections = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [section for section in sections if section[0] != "Unreleased"]
    assert released[0][0] == sluicegate.__version__
    assert all(date for _, date in released)


def test_the_source_archive_holds_everything_that_git_keeps(unpacked: Path) -> None:
    kept = {path.relative_to(ROOT).as_posix() for path in files()}
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {path for path in kept if not path.startswith(".github/")} - held == set()
    assert held - kept == {"PKG-INFO"}
    assert {"tests/conftest.py", "docs/guarantees.md", "mkdocs.yml", "Makefile", "locks/py3.11.txt"} <= held


def test_the_wheel_of_the_source_archive_is_that_of_the_tree(built: Path, unpacked: Path, tmp_path: Path) -> None:
    build(tmp_path, "--target", "wheel", cwd=unpacked)
    assert set(wheel(tmp_path, "sluicegate").namelist()) == set(wheel(built, "sluicegate").namelist())


def test_the_wheel_holds_every_file_of_its_packages(built: Path) -> None:
    # Scripts, types, and the web page's own files among them.
    sources = {
        path.relative_to(ROOT / room).as_posix()
        for room in ROOMS
        for path in files()
        if path.is_relative_to(ROOT / room)
    }
    held = set(wheel(built, "sluicegate").namelist())
    assert {suffix for path in sources if (suffix := Path(path).suffix)} >= {".py", ".lua", ".typed"}
    assert sources - held == set()


def test_the_index_gets_links_and_a_readme_whose_links_work_there(built: Path) -> None:
    found = metadata(wheel(built, "sluicegate"))
    urls = dict(each.split(", ", 1) for each in found.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    assert found["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)\s]+)\)", str(found.get_payload()))
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.parametrize("name", ALIASES)
def test_a_name_without_code_installs_the_same_version_and_registers_nothing(built: Path, name: str) -> None:
    archive = wheel(built, name)
    found = metadata(archive)
    assert found["Name"] == name
    assert found["Version"] == sluicegate.__version__
    assert found.get_all("Requires-Dist") == [f"sluicegate[{ALIASES[name]}]=={sluicegate.__version__}"]
    assert {path.rpartition("/")[2] for path in archive.namelist()} == {"METADATA", "WHEEL", "RECORD"}


def test_one_distribution_registers_the_provider_under_its_own_name(built: Path) -> None:
    from airflow_provider_sluicegate.get_provider_info import get_provider_info

    registering = []
    for path in built.glob("*.whl"):
        archive = zipfile.ZipFile(path)
        entry_points = [archive.read(each).decode() for each in archive.namelist() if each.endswith("entry_points.txt")]
        if any("[apache_airflow_provider]" in text for text in entry_points):
            registering.append(metadata(archive)["Name"])
    # Airflow refuses to load any provider where the two differ.
    assert registering == [get_provider_info()["package-name"]] == ["sluicegate"]


def test_addresses_of_the_project_begin_as_declared() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    site = re.search(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert site is not None
    assert site[1] == urls["Documentation"]
    for name in ALIASES:
        alias = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())["project"]["urls"]
        assert alias["Documentation"].startswith(urls["Documentation"])
        assert alias["Source"] == urls["Source"]
