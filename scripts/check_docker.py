"""Check the files of docker/ without an engine and without a network.

Dockerfiles by hadolint, compose.yaml by the schema of Compose files, the manifests by the schemas of Kubernetes, and
scripts by their shells. What depends on this project, such as versions and commands, is checked by tests/docker.

Usage: check_docker.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docker"
BIN = Path(sys.executable).parent
KUBERNETES = "1.30"
# Files of other programs: no kinds that Kubernetes knows by itself.
OTHER_APIS = ("keda.sh/", "kustomize.config.k8s.io/", "monitoring.coreos.com/")


def dockerfiles() -> list[str]:
    """Return what hadolint finds in the Dockerfiles."""
    return _run(sorted(FOLDER.rglob("Dockerfile*")), [str(BIN / "hadolint"), "--no-color"])


def compose() -> list[str]:
    """Return how compose.yaml differs from the schema of Compose files."""
    import jsonschema

    # In this process, since starting check-jsonschema takes longer than the check.
    schema = json.loads(files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    errors = validator.iter_errors(yaml.safe_load((FOLDER / "compose.yaml").read_text()))
    return [f"compose.yaml {'.'.join(map(str, error.path))}: {error.message.splitlines()[0]}" for error in errors]


def manifests() -> list[str]:
    """Return how the manifests differ from the schemas of Kubernetes."""
    import kubernetes_validate

    problems = []
    for path, manifest in read_manifests(FOLDER / "kubernetes"):
        if str(manifest.get("apiVersion", "")).startswith(OTHER_APIS):
            continue
        name = f"{path.relative_to(ROOT)}: {manifest.get('kind')}"
        try:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(map(str, error.path))
            problems.append(f"{name} {where}: {error.message.splitlines()[0]}")
        except kubernetes_validate.SchemaNotFoundError as error:
            problems.append(f"{name}: {error.message}")
    return problems


def shells() -> list[str]:
    """Return the syntax errors of the scripts, each by the shell of its first line."""
    problems = []
    for path in sorted(FOLDER.rglob("*.sh")):
        first = path.read_text().partition("\n")[0]
        shell = {"#!/bin/sh": "sh", "#!/usr/bin/env bash": "bash"}.get(first)
        if shell is None:
            problems.append(
                f"{path.relative_to(ROOT)} begins with {first!r}, not with #!/bin/sh or #!/usr/bin/env bash"
            )
        else:
            problems += _run([path], [shell, "-n"])
    return problems


def read_manifests(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every manifest of a folder with its file."""
    for path in sorted(folder.glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest is not None:
                yield path, manifest


CHECKS: tuple[Callable[[], list[str]], ...] = (compose, dockerfiles, manifests, shells)


def _run(paths: list[Path], command: list[str]) -> list[str]:
    """Run a program on files and return its output as lines if it fails."""
    done = subprocess.run([*command, *map(str, paths)], cwd=ROOT, text=True, capture_output=True, check=False)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


def main() -> int:
    """Run every check; 0 when none found anything."""
    with ThreadPoolExecutor() as pool:
        problems = [problem for found in pool.map(lambda check: check(), CHECKS) for problem in found]
    print(*problems, sep="\n", end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
