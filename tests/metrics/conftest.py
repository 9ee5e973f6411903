"""Fixtures of the tests of metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.metrics import QueueCollector, render
from tests.metrics import promtool
from tests.support import not_run

# Without promtool, a run that would need it lists it as not run.
collect_ignore = [] if promtool.is_there() else ["test_promtool.py"]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
Read = Callable[..., float | None]


def pytest_collection_finish(session: pytest.Session) -> None:
    if collect_ignore and any(Path(__file__).parent in item.path.parents for item in session.items):
        not_run.note(promtool.MISSING)


def samples_of(text: str) -> Samples:
    """Return the samples of a scrape, without the labels that are empty."""
    return {
        (sample.name, frozenset((name, value) for name, value in sample.labels.items() if value)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(collector: QueueCollector) -> Read:
    """Scrape once; returns a function from a name without `sluicegate_`, and labels, to the value."""
    _, text = render(collector)
    samples = samples_of(text.decode())

    def read(name: str, **labels: str) -> float | None:
        return samples.get((f"sluicegate_{name}", frozenset(labels.items())))

    return read


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return a registry of the test's own."""
    return CollectorRegistry()
