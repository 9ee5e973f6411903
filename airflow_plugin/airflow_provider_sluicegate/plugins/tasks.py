"""Find out which queue a task instance works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

__all__ = ["TaskPlace", "place_of_fields", "place_of_task"]

_DEFAULT_CONNECTION = "sluicegate_default"
_OF_JOBS = ("payloads", "job_ids")


@dataclass(frozen=True)
class TaskPlace:
    """
    What a task works on.

    :param conn_id: the connection.
    :param place: the queue, stream or group.
    :param is_jobs: whether it is a queue of jobs.
    """

    conn_id: str
    place: Place
    is_jobs: bool = False


def place_of_task(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskPlace | None:
    """
    Return what a task instance works on, from the arguments that Airflow has rendered for it.

    :return: None for a task that has not begun, is no task of Sluicegate, or so old that Airflow has forgotten them.
    """
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session
    from sqlalchemy import select

    columns = RenderedTaskInstanceFields
    query = select(columns.rendered_fields).where(
        columns.dag_id == dag_id,
        columns.run_id == run_id,
        columns.task_id == task_id,
        columns.map_index == map_index,
    )
    with create_session() as session:
        fields = session.scalar(query)
    return None if not isinstance(fields, Mapping) else place_of_fields(fields)


def place_of_fields(fields: Mapping[str, Any]) -> TaskPlace | None:
    """Return what rendered arguments name; None if they name no place."""
    names = [fields.get(name) for name in ("queue_name", "stream", "group")]
    queue, stream, group = (name if isinstance(name, str) and name not in ("", "None") else None for name in names)
    conn_id = fields.get("redis_conn_id")
    try:
        place = Place.named(queue, stream=stream, group=group)
    except ConfigurationError:
        return None
    is_jobs = queue is not None and any(name in fields for name in _OF_JOBS)
    return TaskPlace(conn_id if isinstance(conn_id, str) and conn_id else _DEFAULT_CONNECTION, place, is_jobs)
