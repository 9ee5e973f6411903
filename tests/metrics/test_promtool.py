"""Prometheus's own checker accepts configuration, rules and every query, and the alerts fire as their tests say."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.metrics.dashboards import PROMETHEUS, dashboard_expressions
from tests.metrics.promtool import promtool


def test_the_configuration_is_valid() -> None:
    done = promtool("check", "config", "prometheus.yml", folder=PROMETHEUS)
    assert done.returncode == 0, done.stderr
    assert "is valid prometheus config" in done.stdout


def test_every_alert_fires_when_it_should_and_not_otherwise() -> None:
    done = promtool("test", "rules", "rules_test.yml", folder=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    queries = [query.replace("$__rate_interval", "5m") for query in dashboard_expressions()]
    records = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    done = promtool("check", "rules", "rules.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
