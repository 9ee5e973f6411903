"""The rules of compose.yaml: health checks, no root, no moving tags, versions of the locks, commands that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT

FOLDER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# They end by themselves.
ONE_SHOT = {"airflow-migrate", "demo"}
FROM_A_REGISTRY = {"redis", "postgres", "prometheus", "grafana"}
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
TAG = re.compile(r"[\w./-]+:[\w.-]+")


def defaults(text: str) -> str:
    """Return a text of compose.yaml with the defaults of its variables."""
    return VARIABLE.sub(r"\2", text)


def test_every_part_of_the_house_is_there() -> None:
    assert SERVICES.keys() - ONE_SHOT == {
        *("redis", "postgres", "prometheus", "grafana", "exporter", "ui"),
        *("airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"),
        *("dagster-code", "dagster-webserver", "dagster-daemon"),
        *("spark-master", "spark-worker-1", "spark-worker-2"),
    }


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))
def test_a_service_has_a_health_check_that_names_its_program(name: str) -> None:
    check = SERVICES[name]["healthcheck"]

    assert check["test"][0] == "CMD"
    assert check.keys() >= {"interval", "timeout", "retries", "start_period"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_no_root_no_capabilities_and_a_limit(name: str) -> None:
    service = SERVICES[name]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["mem_limit"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_image_has_a_tag_that_does_not_move(name: str) -> None:
    image = defaults(SERVICES[name]["image"])

    assert TAG.fullmatch(image)
    assert not image.endswith(":latest")
    if name in FROM_A_REGISTRY:
        assert re.search(r"\d+\.\d+", image.rpartition(":")[2])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_ports_are_published_on_this_machine_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])

    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert not ports or "front" in SERVICES[name]["networks"]


def test_published_ports_differ() -> None:
    ports = [defaults(port).split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports)) == 6


def test_the_services_talk_on_a_network_without_a_way_out() -> None:
    assert COMPOSE["networks"]["backend"] == {"internal": True}
    assert [name for name, service in SERVICES.items() if "backend" not in service["networks"]] == []


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_password_is_a_file_and_never_a_value(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    secret = [key for key in environment if re.search(r"PASSWORD|SECRET|TOKEN|FERNET|SQL_ALCHEMY_CONN", key)]

    for key in secret:
        value = environment[key]
        if key == "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE":  # the copy that api-server.sh makes
            assert value.startswith("/tmp/")
            continue
        assert key.endswith("_FILE")
        file = value.removeprefix("/run/secrets/")
        assert file in SERVICES[name]["secrets"]
        assert file in COMPOSE["secrets"]


def test_every_secret_is_made_by_the_script_and_ignored_by_git() -> None:
    script = (FOLDER / "secrets.sh").read_text()

    assert [name for name in COMPOSE["secrets"] if not re.search(rf"\b{name}\b", script)] == []
    assert {secret["file"] for secret in COMPOSE["secrets"].values()} == {
        f"./secrets/{name}" for name in COMPOSE["secrets"]
    }
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_what_is_mounted_from_the_project_exists_and_is_read_only() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", []) if mount.startswith(".")]

    assert len(mounts) > 20
    assert [mount for mount in mounts if not mount.endswith(":ro")] == []
    assert [mount for mount in mounts if not (FOLDER / mount.split(":")[0]).exists()] == []


def test_volumes_and_networks_are_declared_and_used() -> None:
    used = {
        mount.split(":")[0]
        for service in SERVICES.values()
        for mount in service.get("volumes", [])
        if not mount.startswith(".")
    }
    assert used == COMPOSE["volumes"].keys()


def test_both_spark_workers_are_equal_and_offer_what_the_drivers_ask_for() -> None:
    conf = dict(
        line.split(None, 1)
        for line in (FOLDER / "spark/spark-defaults.conf").read_text().splitlines()
        if line and not line.startswith("#")
    )
    command = SERVICES["spark-worker-1"]["command"]

    assert SERVICES["spark-worker-1"] == SERVICES["spark-worker-2"]
    cores = int(command[command.index("--cores") + 1])
    assert int(conf["spark.cores.max"]) == 2 * cores
    assert int(conf["spark.executor.cores"]) == cores
    assert conf["spark.master"] == command[-1]
    assert "spark" in SERVICES["spark-master"]["networks"]["backend"]["aliases"]


def test_every_image_of_the_project_is_built_by_one_service_from_a_target_of_the_dockerfile() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    targets = {target for target in re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE) if target != "wheel"}
    built = {
        service["image"].partition(":")[0]: service["build"]["target"]
        for service in SERVICES.values()
        if "build" in service
    }
    own = {service["image"].partition(":")[0] for name, service in SERVICES.items() if name not in FROM_A_REGISTRY}

    assert built.keys() == own
    assert set(built.values()) == targets
    assert {image.removeprefix("sluicegate-") for image in built} == targets


def test_the_prometheus_of_the_house_scrapes_the_exporter_at_its_port() -> None:
    command = SERVICES["exporter"]["command"]
    port = command[command.index("--port") + 1]
    scraped = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())["scrape_configs"]

    targets = [target for job in scraped for static in job.get("static_configs", []) for target in static["targets"]]
    assert f"exporter:{port}" in targets
    assert any(f"localhost:{port}/" in word for word in SERVICES["exporter"]["healthcheck"]["test"])
