"""The rules of the manifests, and the check that finds what is wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import check_docker
from tests.support.project import ROOT

MANIFESTS = [manifest for _, manifest in check_docker.read_manifests(ROOT / "docker/kubernetes")]
DEPLOYMENTS = {manifest["metadata"]["name"]: manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment"}


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {manifest["metadata"]["name"]: manifest for manifest in MANIFESTS if manifest["kind"] == kind}


def test_there_are_workers_an_exporter_and_the_page() -> None:
    assert DEPLOYMENTS.keys() == {"sluicegate-worker", "sluicegate-exporter", "sluicegate-page"}


@pytest.mark.parametrize("name", sorted(DEPLOYMENTS))
def test_a_pod_is_restricted_and_has_limits_and_a_readiness_probe(name: str) -> None:
    pod = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}
    assert container["readinessProbe"]
    assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("name", ["sluicegate-exporter", "sluicegate-page"])
def test_what_serves_has_a_liveness_probe_that_does_not_ask_redis(name: str) -> None:
    (container,) = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("name", sorted(DEPLOYMENTS))
def test_labels_select_the_pods_of_a_deployment_service_and_budget(name: str) -> None:
    deployment = DEPLOYMENTS[name]["spec"]
    labels = deployment["template"]["metadata"]["labels"].items()

    assert deployment["selector"]["matchLabels"].items() <= labels
    assert of_kind("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"].items() <= labels
    if name != "sluicegate-worker":
        assert of_kind("Service")[name]["spec"]["selector"].items() <= labels


def test_secrets_are_references_and_configuration_is_there() -> None:
    for deployment in DEPLOYMENTS.values():
        pod = deployment["spec"]["template"]["spec"]
        variables = pod["containers"][0]["env"]
        secret = [each for each in variables if each["name"] != "SLUICEGATE_CONFIG"]
        assert [each["valueFrom"]["secretKeyRef"]["name"] for each in secret] == ["sluicegate-redis"] * len(secret)
        assert "REDIS_PASSWORD" in {each["name"] for each in secret}
        assert pod["volumes"][0]["configMap"]["name"] in of_kind("ConfigMap")
        assert pod["serviceAccountName"] in of_kind("ServiceAccount")
    assert of_kind("Secret") == {}


def test_only_one_exporter_runs_at_a_time() -> None:
    exporter = DEPLOYMENTS["sluicegate-exporter"]["spec"]
    assert (exporter["replicas"], exporter["strategy"]) == (1, {"type": "Recreate"})


def test_the_configuration_is_one_that_the_command_line_reads(tmp_path: Path) -> None:
    from sluicegate.cli.settings import Settings

    text = of_kind("ConfigMap")["sluicegate"]["data"]["sluicegate.toml"]
    for source in (text, (ROOT / "docker/sluicegate/sluicegate.toml").read_text()):
        file = tmp_path / "sluicegate.toml"
        file.write_text(source)
        settings = Settings.load(config=file, environ={})
        assert settings.url.endswith("?password_env=REDIS_PASSWORD")
        assert settings.gates
        assert settings.web == {"open_health": True}


@pytest.mark.parametrize(
    ("check", "file", "old", "new", "found"),
    [
        (check_docker.manifests, "kubernetes/worker.yaml", "replicas: 2", "replicas: two", "Deployment spec.replicas"),
        (check_docker.manifests, "kubernetes/page.yaml", "readinessProbe:", "readyProbe:", "readyProbe"),
        (check_docker.compose, "compose.yaml", "  cap_drop: [ALL]", "  cap_drops: [ALL]", "cap_drops"),
        (check_docker.dockerfiles, "Dockerfile", "USER 10001:10001", "ADD x /\nUSER 10001:10001", "DL3020"),
        (check_docker.shells, "up.sh", "bash secrets.sh", "if bash secrets.sh", "up.sh"),
        (check_docker.shells, "entrypoint.sh", "#!/bin/sh", "#!/bin/zsh", "entrypoint.sh begins with '#!/bin/zsh'"),
    ],
    ids=["type", "field", "compose", "dockerfile", "syntax", "shell"],
)
def test_the_check_finds_what_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[], list[str]],
    file: str,
    old: str,
    new: str,
    found: str,
) -> None:
    copy = tmp_path / "docker"
    shutil.copytree(ROOT / "docker", copy, ignore=shutil.ignore_patterns("wheelhouse", "secrets"))
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    monkeypatch.setattr(check_docker, "FOLDER", copy)
    monkeypatch.setattr(check_docker, "ROOT", tmp_path)

    assert any(found in problem for problem in check())
