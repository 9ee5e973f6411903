"""Dashboard, alert rules and the page about metrics name metrics that exist, and all of them are there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.metrics import DEFAULT_PORT, MetricsObserver, QueueCollector, render
from sluicegate.metrics.catalogue import (
    CLIENT_METRICS,
    CONSUMER_METRICS,
    GROUP_METRICS,
    SCRAPE_METRICS,
    STREAM_METRICS,
    metrics_table,
)
from sluicegate.place import Place
from sluicegate.streams import RedisStreamQueue
from tests.metrics.dashboards import (
    DASHBOARD,
    PROMETHEUS,
    dashboard,
    dashboard_expressions,
    metrics_in,
    panels,
    rules,
)
from tests.support.project import ROOT
from tests.support.servers import RedisServer

DECLARED = {one.name for one in (*CONSUMER_METRICS, *STREAM_METRICS, *GROUP_METRICS, *SCRAPE_METRICS, *CLIENT_METRICS)}
PAGE = (ROOT / "docs" / "metrics.md").read_text()


@pytest.fixture
def served(client: redis.Redis, server: RedisServer, registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return the metrics that a scrape and an observer really serve, each with its labels."""
    RedisMessageQueue("orders", client=client).publish("a")
    stream = RedisStreamQueue("events", client=client)
    stream.publish("a")
    stream.group("billing").create("beginning")
    client.set("sluicegate:{broken}:pending", "junk")
    gateway = RedisGateway(url=server.url)
    _, text = render(QueueCollector(gateway=gateway))
    _, more = render(QueueCollector(gateway=gateway, places=["broken", Place("events", stream=True, group="billing")]))
    gateway.close()
    client.delete("sluicegate:{broken}:pending")
    observer = MetricsObserver(registry)
    for operation in (EventOperation.PUBLISH, EventOperation.HANDLE, EventOperation.ACK):
        observer(QueueEvent(operation, EventOutcome.SUCCESS, "q", duration_seconds=0.1, held_seconds=0.1))
    observer(QueueEvent(EventOperation.CLAIM, EventOutcome.RETRY, "q", 0))
    found: dict[str, set[str]] = {}
    for each in (text.decode(), more.decode(), generate_latest(registry).decode()):
        for family in text_string_to_metric_families(each):
            if family.name.endswith("_created"):  # the client library adds them
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.setdefault(name, set()).update(label for one in family.samples for label in one.labels)
    return found


@pytest.fixture
def absent(client: redis.Redis) -> set[str]:
    """Return the metrics that this server cannot serve: before 7.0 it does not count what a group has yet to read."""
    version = int(client.info("server")["redis_version"].split(".")[0])
    return {"sluicegate_group_lag_messages"} if version < 7 else set()


def test_what_is_declared_is_served(served: dict[str, set[str]], absent: set[str]) -> None:
    assert set(served) == DECLARED - absent


def test_the_dashboard_and_the_rules_use_metrics_and_labels_that_are_served(
    served: dict[str, set[str]], absent: set[str]
) -> None:
    expressions = [*dashboard_expressions(), *(rule["expr"] for rule in rules())]
    used = {name for expression in expressions for name in metrics_in(expression)}
    assert used - set(served) <= absent
    for expression in expressions:
        for name, selector in re.findall(r"\bsluicegate_(\w+)\{([^}]*)\}", expression):
            (metric,) = metrics_in(f"sluicegate_{name}")
            if metric not in absent:
                assert set(re.findall(r"(\w+)\s*!?=~?", selector)) <= served[metric], expression


def test_recorded_rates_are_those_of_the_rules() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    texts = (*dashboard_expressions(), (ROOT / "docker" / "kubernetes" / "keda.yaml").read_text())
    used = {name for text in texts for name in re.findall(r"\bsluicegate:[\w:]+", text)}
    assert used <= recorded
    assert used


@pytest.mark.parametrize("which", ["consumers", "streams", "groups", "scrape", "client"])
def test_the_page_s_tables_are_the_catalogue_s(which: str) -> None:
    assert f"<!-- metrics: {which} -->\n{metrics_table(which)}<!-- end of metrics -->" in PAGE


def test_the_page_explains_every_alert() -> None:
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    assert sorted(re.findall(r"^\| `(Sluicegate\w+)`", PAGE, re.MULTILINE)) == sorted(alerts)


def test_every_alert_is_tested_for_firing() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test.get("alert_rule_test", ()) if one.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


def test_prometheus_scrapes_the_exporter_at_its_port() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    targets = {job["job_name"]: job.get("static_configs", [{}])[0].get("targets") for job in config["scrape_configs"]}
    assert targets["sluicegate"] == [f"exporter:{DEFAULT_PORT}"]
    assert all((PROMETHEUS / name).exists() for name in config["rule_files"])


def test_the_dashboard_s_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    found = dashboard()
    every = found["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in panels()}) == len(panels())
    cells: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & area, panel["title"]
        cells |= area


def test_the_dashboard_asks_the_chosen_data_source_by_chosen_places() -> None:
    found = dashboard()
    names = [variable["name"] for variable in found["templating"]["list"]]
    assert names == ["datasource", "queue", "stream", "group"]
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_grafana_finds_the_data_source_and_the_dashboard() -> None:
    provisioning = DASHBOARD.parents[1] / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    current = dashboard()["templating"]["list"][0]["current"]["value"]
    assert (source["type"], source["uid"]) == ("prometheus", current)
    provider = yaml.safe_load((provisioning / "dashboards" / "sluicegate.yaml").read_text())["providers"][0]
    assert provider["type"] == "file"
    assert provider["options"]["path"]


# ---------------------------------------------------------------------- autoscaling


def keda() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "kubernetes" / "keda.yaml").read_text())
    return found


def test_the_recipe_keeps_its_workers_while_nobody_knows_the_backlog() -> None:
    recipe = keda()
    (trigger,) = recipe["spec"]["triggers"]
    assert recipe["kind"] == "ScaledObject"
    assert recipe["spec"]["scaleTargetRef"]["name"] == "sluicegate-worker"
    assert trigger["type"] == "prometheus"
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert recipe["spec"]["fallback"]["replicas"] > 0
    assert recipe["spec"]["minReplicaCount"] == 0
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts only"


def test_the_page_shows_the_recipe_as_it_is() -> None:
    page = (ROOT / "docs" / "autoscaling.md").read_text()
    (shown,) = [yaml.safe_load(code) for code in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    recipe = keda()
    assert_part(shown, recipe)


def assert_part(part: Any, whole: Any) -> None:
    """Check that what a page shows is in the file."""
    if isinstance(part, dict):
        for name, value in part.items():
            assert_part(value, whole[name])
    elif isinstance(part, list):
        assert len(part) == len(whole)
        for one, other in zip(part, whole, strict=True):
            assert_part(one, other)
    else:
        assert part == whole
