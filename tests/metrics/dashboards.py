"""The expressions of the dashboard and of the alert rules in `docker/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.project import ROOT

PROMETHEUS = ROOT / "docker" / "prometheus"
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "sluicegate.json"
_METRIC = re.compile(r"\bsluicegate_\w+")


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """Return the queries of all panels."""
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    """Return the alerts and recording rules."""
    return [
        rule for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"] for rule in group["rules"]
    ]


def metrics_in(expression: str) -> Iterator[str]:
    """Yield the metrics of an expression, a histogram by its name."""
    for name in _METRIC.findall(expression):
        yield re.sub(r"_(bucket|sum|count)$", "", name)
