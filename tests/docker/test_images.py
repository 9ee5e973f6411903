"""The rules of the Dockerfiles and of what their builds read."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sluicegate.cli.registry import COMMANDS
from tests.support.project import ROOT

FOLDER = ROOT / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
LOCK = dict(line.split("==") for line in (ROOT / "locks/py3.12.txt").read_text().splitlines())
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def installed() -> list[str]:
    """Return what the Dockerfile installs."""
    joined = DOCKERFILE.replace("\\\n", " ")
    found = re.findall(r"docker/install\.sh (?:tools|venv) ([^\n&]+)", joined)
    return [word for line in found for word in shlex.split(line)]


def test_every_package_has_its_version_from_the_lock() -> None:
    names = [Requirement(word) for word in installed()]

    assert len(names) > 10
    assert [str(each) for each in names if each.specifier] == []
    assert [each.name for each in names if each.name != "sluicegate" and canonicalize_name(each.name) not in LOCK] == []
    assert '--constraint "$lock"' in (FOLDER / "install.sh").read_text()


def test_the_extras_that_the_images_install_exist() -> None:
    extras = set(distribution("sluicegate").metadata.get_all("Provides-Extra") or ())
    asked = {extra for word in installed() for extra in Requirement(word).extras}

    assert asked >= {"airflow", "cli", "dagster", "metrics", "spark", "web"}
    assert asked <= extras


def test_the_base_is_an_argument_and_every_stage_ends_without_root() -> None:
    assert DOCKERFILE.count("\nARG BASE=") == 1
    assert not re.search(r":latest\b", DOCKERFILE)
    stages = re.split(r"^FROM .* AS ", DOCKERFILE, flags=re.MULTILINE)[1:]
    users = {stage.partition("\n")[0]: re.findall(r"^USER (\S+)$", stage, re.MULTILINE) for stage in stages}
    assert users.pop("wheel") == []  # its image is never run
    assert {name: found[-1] for name, found in users.items()} == dict.fromkeys(users, "10001:10001")


def test_the_context_of_the_build_has_no_secrets_caches_or_tests() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [rule.removeprefix("!").rstrip("/") for rule in rules if rule.startswith("!")]

    assert rules[1] == "*"
    assert [path for path in allowed if not (ROOT / path).exists()] == []
    assert not any(path in ("docker", "docker/secrets", ".git", "tests", ".venv") for path in allowed)
    copied = re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
    sources = {source.rstrip("/") for line in copied for source in line.split()[:-1]}
    assert sources <= set(allowed)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.sh")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_script_can_be_executed_and_stops_at_the_first_error(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert re.search(r"^set -eu(o pipefail)?$", path.read_text(), re.MULTILINE)


def test_git_ignores_what_is_made_here() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"docker/secrets/", "docker/wheelhouse/*.whl", "docker/.env"} <= set(ignored)


def run_entrypoint(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a folder for its secrets."""
    script = folder / "entrypoint.sh"
    script.write_text((FOLDER / "entrypoint.sh").read_text().replace("/run/secrets", str(folder)))
    command = ["sh", str(script), "sh", "-c", 'printf "%s" "$WORD"']
    base = {"PATH": os.environ["PATH"]}
    return subprocess.run(command, env=base | environment, capture_output=True, text=True, check=False)


def test_the_entry_point_makes_variables_of_secret_files(tmp_path: Path) -> None:
    (tmp_path / "word").write_text('it\'s $HOME `a` "secret"\n')

    done = run_entrypoint(tmp_path, WORD_FILE=f"{tmp_path}/word", OTHER_FILE="/elsewhere/word")

    assert (done.returncode, done.stdout, done.stderr) == (0, 'it\'s $HOME `a` "secret"', "")


def test_the_entry_point_names_a_secret_that_is_missing(tmp_path: Path) -> None:
    done = run_entrypoint(tmp_path, WORD_FILE=f"{tmp_path}/word")

    assert done.returncode == 78
    assert f"cannot read {tmp_path}/word, which WORD_FILE names" in done.stderr


def test_the_secrets_are_made_once_random_and_behind_a_closed_folder(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    for name in ("secrets.sh", "redis/users.acl"):
        (tmp_path / name).write_text((FOLDER / name).read_text())

    def make() -> dict[str, str]:
        subprocess.run(["bash", str(tmp_path / "secrets.sh")], check=True)
        return {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}

    first = make()

    assert make() == first
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    passwords = [value for name, value in first.items() if name.endswith(("_password", "_token", "_key", "_secret"))]
    assert len(set(passwords)) == len(passwords) == 8
    assert min(map(len, passwords)) >= 32
    assert first["postgres_password"] in first["airflow_database_url"]
    assert first["redis_password"] not in first["redis_users"]


def test_every_command_of_the_command_line_that_containers_run_exists() -> None:
    manifests = [
        manifest
        for path in (FOLDER / "kubernetes").glob("*.yaml")
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest and manifest["kind"] == "Deployment"
    ]
    containers = [each for manifest in manifests for each in manifest["spec"]["template"]["spec"]["containers"]]
    used = {service["command"][1] for service in SERVICES.values() if service.get("command", [""])[0] == "sluicegate"}
    used |= {container["args"][1] for container in containers}
    used |= {
        container["readinessProbe"]["exec"]["command"][1]
        for container in containers
        if "exec" in container["readinessProbe"]
    }

    assert used == {"exporter", "health", "ui", "worker"}
    assert used <= {command.name for command in COMMANDS}


@pytest.mark.parametrize("name", ["exporter", "ui"])
def test_a_service_gives_its_command_only_options_that_it_has(name: str) -> None:
    command = SERVICES[name]["command"]
    assert command[0] == "sluicegate"
    shown = subprocess.check_output([Path(sys.executable).with_name("sluicegate"), command[1], "--help"], text=True)
    assert [word for word in command[2:] if word.startswith("--") and word not in shown] == []
