"""Make the Spark session of a task from what the task and its connection say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_sluicegate.draining import Log

__all__ = ["opened_session", "session_options"]

_LOCAL = "local[*]"
_REMOTE = "spark.remote"
_MASTER = "spark.master"
_CONNECT = "spark_connect"


def session_options(conn_id: str | None, config_kwargs: Mapping[str, Any] | None, app_name: str) -> dict[str, Any]:
    """
    Return the configuration of a session, decided as the Spark provider's ``PySparkOperator`` decides.

    :param conn_id: a connection of type ``spark`` or ``spark_connect``; None for a local master.
    :param config_kwargs: configuration that has precedence over the connection's.
    :param app_name: the name of the application.
    :raises ConfigurationError: what is installed does not suffice for it, or an argument has another type.
    :raises AirflowNotFoundException: there is no such connection.
    """
    from sluicegate.errors import ConfigurationError

    if find_spec("pyspark") is None:
        raise ConfigurationError(
            "pyspark is not installed here; install 'sluicegate[spark]', or 'sluicegate[spark-connect]' for Spark "
            "Connect, where the task runs"
        )
    if config_kwargs is not None and not isinstance(config_kwargs, Mapping):
        raise ConfigurationError(f"config_kwargs must be a dict of Spark's configuration, not {config_kwargs!r}")
    options: dict[str, Any] = {"spark.app.name": app_name}
    url = _LOCAL
    if conn_id:
        url, extra = _connection(conn_id)
        options |= extra
    if url.startswith("sc://"):
        options[_REMOTE] = url
    options |= config_kwargs or {}
    if not options.get(_REMOTE) and not options.get(_MASTER):
        options[_MASTER] = url
    if options.get(_REMOTE) and options.get(_MASTER):
        raise ConfigurationError(
            f"the session has a master ({options[_MASTER]!r}) and is one of Spark Connect; leave {_MASTER} out of "
            "config_kwargs and the connection's extra, or choose another conn_id"
        )
    _refuse_missing_spark(options)
    return options


@contextmanager
def opened_session(options: Mapping[str, Any], log: Log) -> Iterator[SparkSession]:
    """
    Yield a session, and stop it afterwards if it was made here.

    :param options: its configuration, from :func:`session_options`. A session that the process has already is used as
        it is.
    :param log: of the operator.
    """
    from pyspark.sql import SparkSession

    existing = _existing_session()
    if existing is not None:
        log.info(
            "this process has a Spark session already: it is used as it is, without conn_id and config_kwargs, and is "
            "not stopped"
        )
        yield existing
        return
    session = SparkSession.builder.config(map=dict(options)).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _existing_session() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # there is none
        return None


def _connection(conn_id: str) -> tuple[str, dict[str, Any]]:
    """Return where the Spark of a connection is, and the configuration in its extra."""
    from airflow.sdk import BaseHook

    connection = BaseHook.get_connection(conn_id)
    extra: dict[str, Any] = connection.extra_dejson
    if connection.conn_type == _CONNECT:
        return _connect_url(conn_id), extra
    if connection.port:
        return f"{connection.host}:{connection.port}", extra
    return connection.host or _LOCAL, extra


def _connect_url(conn_id: str) -> str:
    from sluicegate.errors import ConfigurationError

    try:
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
    except ImportError as error:
        raise ConfigurationError(
            f"connection {conn_id!r} is of type {_CONNECT!r}, which only Airflow's Spark provider reads: install "
            "apache-airflow-providers-apache-spark; without conn_id, the drain runs on a local master"
        ) from error
    url: str = SparkConnectHook(conn_id).get_connection_url()
    return url


def _refuse_missing_spark(options: Mapping[str, Any]) -> None:
    """Refuse a master of classic Spark where only the client of Connect is installed, as by Airflow's provider."""
    from pyspark.util import is_remote_only

    from sluicegate.errors import ConfigurationError

    if is_remote_only() and not options.get(_REMOTE) and "SPARK_REMOTE" not in os.environ:
        raise ConfigurationError(
            f"master {options[_MASTER]!r} needs pyspark, and only pyspark-client is installed here; give a conn_id of "
            f"type {_CONNECT!r}, or install 'sluicegate[spark]'"
        )
