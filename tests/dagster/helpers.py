"""What the tests need of Dagster beyond its public names: the private imports are all here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.remote_representation.external_data import RepositorySnap, ResourceSnap

from dagster_sluicegate import RedisQueueResource

DEADLINE_SECONDS = 60.0
# Runs start in this process, which spares each of them a new interpreter.
_SYNCHRONOUS = {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"}


def look(
    sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance, location: str = ""
) -> tuple[dg.RunRequest | None, str]:
    """Evaluate one tick and return the run request, or None and the reason for skipping.

    Args:
        location: name of the code location, whose origin a daemon gives to the context.
    """
    context = dg.build_sensor_context(instance=instance, resources={"queue": resource})
    if location:
        context._code_location_origin = RegisteredCodeLocationOrigin(location)
    data = sensor.evaluate_tick(context)
    requests = data.run_requests or []
    assert len(requests) <= 1
    return (requests[0] if requests else None), data.skip_message or ""


def submit(
    instance: dg.DagsterInstance,
    request: dg.RunRequest,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.QUEUED,
    location: str = "gates",
    **tags: str,
) -> dg.DagsterRun:
    """Record a run as the daemon does for a request."""
    return instance.create_run_for_job(
        _noop, tags={**request.tags, **tags}, status=status, remote_job_origin=_origin(location)
    )


def _origin(location: str) -> RemoteJobOrigin:
    """Return where a job comes from, which a queued run must say."""
    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__").get_job_origin("_noop")


def succeed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Record the success of a run."""
    kind = dg.DagsterEventType.RUN_SUCCESS.value
    instance.report_dagster_event(dg.DagsterEvent(event_type_value=kind, job_name=run.job_name), run_id=run.run_id)


def retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    """Record the automatic retry of a failed run, as the daemon does: with its tags."""
    tags = {key: value for key, value in run.tags.items() if key != "dagster/will_retry"}
    child = instance.create_run_for_job(
        _noop,
        tags=tags,
        status=dg.DagsterRunStatus.QUEUED,
        parent_run_id=run.run_id,
        root_run_id=run.run_id,
        remote_job_origin=_origin("gates"),
    )
    instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": child.run_id})
    return child


def re_execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    root_run_id: str,
    raise_on_error: bool = True,
    tags: Mapping[str, str] | None = None,
) -> dg.DagsterRun:
    """Execute a new run of the same root, as a re-execution in the UI or a run retry does."""
    run = instance.create_run_for_job(job, parent_run_id=root_run_id, root_run_id=root_run_id, tags=tags)
    execute_run(InMemoryJob(job), run, instance, raise_on_error=raise_on_error)
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def asset_job(
    assets: list[dg.AssetsDefinition], resources: Mapping[str, Any], executor: dg.ExecutorDefinition | None = None
) -> dg.JobDefinition:
    defs = dg.Definitions(
        assets=assets,
        resources=resources,
        jobs=[
            dg.define_asset_job(
                "drain_job", selection=dg.AssetSelection.all(), executor_def=executor or dg.in_process_executor
            )
        ],
    )
    return defs.resolve_job_def("drain_job")


def resource_snapshot(defs: dg.Definitions, key: str) -> ResourceSnap:
    """Return what Dagster's UI gets to know of a resource."""
    snaps = RepositorySnap.from_def(defs.get_repository_def()).resources
    assert snaps is not None
    return next(snap for snap in snaps if snap.name == key)


@contextmanager
def daemon(file: Path) -> Iterator[SensorDaemon]:
    """Yield a sensor daemon's iterations, over a code location that a file defines, with an instance of its own."""
    from dagster._core.test_utils import create_test_daemon_workspace_context, instance_for_test
    from dagster._core.workspace.load_target import PythonFileTarget

    target = PythonFileTarget(
        python_file=str(file), attribute=None, working_directory=str(file.parent), location_name="gates"
    )
    with (
        instance_for_test(overrides={"run_launcher": _SYNCHRONOUS}, synchronous_run_coordinator=True) as instance,
        create_test_daemon_workspace_context(target, instance) as workspace,
    ):
        yield SensorDaemon(instance, workspace)


class SensorDaemon:
    def __init__(self, instance: dg.DagsterInstance, workspace: Any) -> None:
        self.instance = instance
        self._workspace = workspace

    @property
    def has_ticked(self) -> bool:
        return bool(self.instance.all_instigator_state())

    def iterate(self, crashes: Mapping[str, Mapping[str, Exception | int]] | None = None) -> None:
        """Evaluate every sensor that is due; their runs are over at the end.

        Args:
            crashes: by sensor and point of a tick, what happens there: an exception or a signal.
        """
        from dagster._daemon import get_default_daemon_logger
        from dagster._daemon.sensor import execute_sensor_iteration

        list(
            execute_sensor_iteration(
                self._workspace,
                get_default_daemon_logger("SensorDaemon"),
                threadpool_executor=None,
                submit_threadpool_executor=None,
                debug_crash_flags=crashes,
            )
        )

    def ticks(self, sensor: str) -> list[Any]:
        """Its ticks, the first first."""
        state = next(state for state in self.instance.all_instigator_state() if state.instigator_name == sensor)
        return list(reversed(self.instance.get_ticks(state.instigator_origin_id, state.selector_id)))


@dg.op
def _nothing() -> None:
    pass


@dg.job
def _noop() -> None:
    _nothing()


def freshness(defs: dg.Definitions, instance: dg.DagsterInstance, key: str, seconds_later: float = 0) -> str:
    """Return an asset's state of freshness, as Dagster's freshness daemon evaluates it after some time."""
    from dagster._core.definitions.freshness_evaluator import FRESHNESS_EVALUATORS_BY_POLICY_TYPE
    from dagster._core.loader import LoadingContextForTest
    from dagster._core.test_utils import freeze_time

    node = defs.resolve_asset_graph().get(dg.AssetKey(key))
    evaluator = FRESHNESS_EVALUATORS_BY_POLICY_TYPE[type(node.freshness_policy)]()
    with freeze_time(time.time() + seconds_later):
        state = asyncio.run(evaluator.evaluate_freshness(LoadingContextForTest(instance), node))
    return str(state.value)
