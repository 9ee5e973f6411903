"""What differs between Airflow 3.1, 3.2 and 3.3; each difference is found by asking for the feature."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )

try:
    from airflow.sdk import conf
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, Connection

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowOptionalProviderFeatureException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "amask_secret",
    "collects_hook_lineage",
    "conf",
    "get_async_connection",
    "has_legacy_metric_names",
    "has_shared_streams",
    "hook_lineage_collector",
    "is_triggerer",
    "keyword_arguments",
    "plugin_base",
    "renders_start_trigger",
    "stats",
    "worker_lag_seconds",
]


def keyword_arguments(function: Callable[..., Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function takes of a task's context, by the names of its parameters."""
    try:
        from airflow.sdk.bases.decorator import KeywordParameters
    except ImportError:  # Airflow 3.1
        from airflow.utils.operator_helpers import KeywordParameters  # type: ignore[attr-defined]
    return dict(KeywordParameters.determine(function, (), context).unpacking())


async def get_async_connection(hook: type[BaseHook], conn_id: str) -> Connection:
    """
    Look a connection up without blocking the event loop.

    Before Airflow 3.3.2 the asynchronous lookup masks the connection's secrets by a synchronous message, which
    deadlocks a triggerer or is refused there. On those versions the synchronous lookup runs in a thread that asgiref
    knows, so that its messages go through the event loop's own connection.
    """
    from airflow.sdk import Connection

    if hasattr(Connection, "aextra_dejson"):  # came together with asynchronous masking
        return await hook.aget_connection(conn_id)
    connection: Connection = await _in_thread(hook.get_connection, conn_id)
    return connection


async def amask_secret(secret: str) -> None:
    """Mask a text in the logs of this process and of its supervisor, without blocking the event loop."""
    from airflow.sdk import log

    if hasattr(log, "amask_secret"):  # Airflow 3.3.2
        await log.amask_secret(secret)
    else:
        await _in_thread(log.mask_secret, secret)


def has_shared_streams() -> bool:
    """Return whether event triggers can share a stream and learn when their event is stored: from Airflow 3.3 on."""
    return find_spec("airflow.triggers.shared_stream") is not None


def plugin_base() -> Any:
    """
    Return the class that plugins derive from.

    From Airflow 3.2 on it is that of the Task SDK, so that workers, which load plugins too, need no other of them.
    """
    try:
        from airflow.sdk.plugins_manager import AirflowPlugin
    except ImportError:  # Airflow 3.1
        from airflow.plugins_manager import AirflowPlugin  # type: ignore[assignment]
    return AirflowPlugin


def renders_start_trigger() -> bool:
    """Return whether the triggerer renders the templates of a task that starts there: from Airflow 3.3 on."""
    from airflow.triggers.base import BaseTrigger

    return hasattr(BaseTrigger, "render_template_fields")


def worker_lag_seconds() -> float:
    """
    Return the time after which Airflow knows that the worker of a deferred task has ended.

    A worker may report that as late as ``[workers] min_heartbeat_interval`` after the deferral. If the task is queued
    again by then, Airflow takes the report for one about the second worker, and fails the task.
    """
    return conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0) + 1.0


def stats() -> Any:
    """
    Return Airflow's ``Stats``, which sends metrics in this process.

    From Airflow 3.2 on there are two, and each process configures one: the triggerer that of Airflow's core, and a task
    that of the Task SDK.
    """
    stats: Any
    if find_spec("airflow.sdk.observability") is None:  # Airflow 3.1
        stats = import_module("airflow.stats")
    elif is_triggerer():
        stats = import_module("airflow.observability.stats")
    else:
        stats = import_module("airflow.sdk.observability.stats")
    return stats.Stats


def is_triggerer() -> bool:
    """Return whether this is the process of triggers, a fork of one that has loaded this module."""
    return "airflow.jobs.triggerer_job_runner" in sys.modules


def collects_hook_lineage() -> bool:
    """Return whether somebody reads what hooks report of their inputs and outputs in this process."""
    if is_triggerer():
        return False
    try:
        from airflow.sdk.plugins_manager import get_hook_lineage_readers_plugins
    except ImportError:  # Airflow 3.1
        from airflow import plugins_manager

        plugins_manager.initialize_hook_lineage_readers_plugins()  # type: ignore[attr-defined]
        return bool(plugins_manager.hook_lineage_reader_classes)  # type: ignore[attr-defined]
    return bool(get_hook_lineage_readers_plugins())


def hook_lineage_collector() -> Any:
    """Return what hooks report their inputs and outputs to."""
    try:
        from airflow.sdk.lineage import get_hook_lineage_collector
    except ImportError:  # Airflow 3.1
        from airflow.lineage.hook import (  # type: ignore[import-not-found, no-redef]
            get_hook_lineage_collector,
        )
    return get_hook_lineage_collector()


def has_legacy_metric_names() -> bool:
    """Return whether Airflow sends metrics under names that hold what is a tag otherwise, too."""
    try:
        from airflow.sdk import conf
    except ImportError:  # Airflow 3.1 always does
        return True
    return bool(conf.getboolean("metrics", "legacy_names_on", fallback=True))


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    from asgiref.sync import sync_to_async

    return await sync_to_async(function)(*arguments)
