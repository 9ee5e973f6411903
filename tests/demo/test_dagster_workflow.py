"""Dagster is watched through the storage of its instance, which is made with the settings of the example."""

from __future__ import annotations

import os
from collections.abc import Iterator

import dagster as dg
import pytest

from example_dags.demo import dagster_workflow
from example_dags.demo.dagster_workflow import DagsterWorkflow
from example_dags.demo.orchestrators import DAGSTER, ROLES
from example_dags.demo.paths import Paths
from example_dags.demo.workflow import WorkflowError

pytestmark = pytest.mark.dagster


@pytest.fixture
def watched(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterWorkflow]:
    """Yield a workflow over a new instance, which it looks at whenever it is asked."""
    monkeypatch.setattr(dagster_workflow, "_LOOK_SECONDS", -1)
    workflow = DagsterWorkflow(paths, dict(os.environ))
    workflow.prepare()
    yield workflow
    workflow.stop()


def materialize(paths: Paths, *roles: str, requested: bool = False, failing: str = "") -> None:
    """Run assets with the names of the example's, as another process does."""

    def asset(role: str) -> dg.AssetsDefinition:
        @dg.asset(name=DAGSTER.names[role])
        def made() -> None:
            if role == failing:
                raise ValueError("no room")

        return made

    tags = {"dagster/sensor_name": DAGSTER.names["gate"]} if requested else None
    with dg.DagsterInstance.from_config(str(paths.dagster_home)) as instance:
        dg.materialize([asset(role) for role in roles], instance=instance, tags=tags, raise_on_error=False)


def test_the_steps_of_the_publish_and_of_the_requested_run_are_told_by_role(
    paths: Paths, watched: DagsterWorkflow
) -> None:
    assert watched.steps() == {}

    materialize(paths, "publish_year", "publish_month_again")
    steps = watched.steps()
    assert steps["publish_year"].state == steps["publish_month_again"].state == "done"
    assert (steps["gate"].state, steps["gate"].started) == ("running", steps["publish_month_again"].ended)
    assert (watched.poll(), watched.gate_opened) == (None, None)

    materialize(paths, "drain", "average_delays", requested=True)
    steps = watched.steps()
    assert {steps[role].state for role in ROLES} == {"done"}
    assert steps["gate"].ended == steps["drain"].started
    assert watched.gate_opened is not None
    assert steps["publish_month_again"].ended <= watched.gate_opened <= steps["drain"].started  # type: ignore[operator]
    assert watched.poll() == 0


@pytest.mark.full  # the workflow that succeeds stands for it in the quick lane
def test_a_requested_run_that_fails_ends_the_demo_and_the_next_begins_with_a_new_instance(
    paths: Paths, watched: DagsterWorkflow
) -> None:
    materialize(paths, "drain", requested=True, failing="drain")
    assert watched.steps()["drain"].state == "failed"
    assert watched.poll() == 1

    again = DagsterWorkflow(paths, dict(os.environ))
    again.prepare()
    try:
        assert again.steps() == {}
        settings = (paths.dagster_home / "dagster.yaml").read_text()
        assert settings == (dagster_workflow.EXAMPLE / "dagster.yaml").read_text()
    finally:
        again.stop()


def test_settings_that_dagster_refuses_are_named(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    example = tmp_path_factory.mktemp("example")
    (example / "dagster.yaml").write_text("no_such_setting: 1\n")
    monkeypatch.setattr(dagster_workflow, "EXAMPLE", example)

    with pytest.raises(WorkflowError, match=r"dagster\.yaml: .*no_such_setting"):
        DagsterWorkflow(paths, dict(os.environ)).prepare()
