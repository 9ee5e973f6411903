"""Describe the orchestrators that the demo can run in: Airflow and Dagster, with the names of their steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AIRFLOW", "DAGSTER", "ORCHESTRATORS", "ROLES", "Orchestrator"]

# What the steps of a pipeline do, in order. The demo's own steps come before and after them.
ROLES = ("publish_year", "publish_month_again", "gate", "drain", "average_delays")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Describes an orchestrator.

    Attributes:
        key: names the folder and the log.
        label: its name in sentences.
        step: its word for a step.
        names: its names of the steps, by role.
        starts: how it is started, for the screen.
        waits: what happens at the gate, for the screen.
        publisher: what publishes, as the subject of a sentence.
        gate: what the sensor does, as a sentence that takes `min_ready`.
        source: its file or folder, below the project's folder.
        target: the target of make, without and with a crash.
    """

    key: str
    label: str
    step: str
    names: Mapping[str, str]
    starts: str
    waits: str
    publisher: str
    gate: str
    source: str
    target: tuple[str, str]


AIRFLOW = Orchestrator(
    key="airflow",
    label="Airflow",
    step="task",
    names={role: role for role in ROLES},
    starts="Start Airflow (dag.test on SQLite)",
    waits="Wait at the gate until it is deep enough",
    publisher="A DAG",
    gate="The sensor only read the depth; it opened the gate at more than {min_ready:,} ready messages.",
    source="example_dags/flights.py",
    target=("make demo", "make demo-crash"),
)
DAGSTER = Orchestrator(
    key="dagster",
    label="Dagster",
    step="step",
    names={
        "publish_year": "published_year",
        "publish_month_again": "published_month_again",
        "gate": "flights_gate",
        "drain": "flights",
        "average_delays": "average_delays",
    },
    starts="Start Dagster (daemon, dg launch)",
    waits="Wait for the sensor and the run queue",
    publisher="Two assets",
    gate=(
        "The sensor only read the depth; at more than {min_ready:,} ready messages it requested one run, which the "
        "daemon took from its run queue."
    ),
    source="examples/dagster",
    target=("make demo-dagster", 'make demo-dagster ARGS="--crash"'),
)
ORCHESTRATORS = {orchestrator.key: orchestrator for orchestrator in (AIRFLOW, DAGSTER)}
