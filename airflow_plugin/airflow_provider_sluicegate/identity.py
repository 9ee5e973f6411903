"""Name the work of a task instance, so that its retry finds the leases that it left open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["run_id_of"]


def run_id_of(context: Mapping[str, Any]) -> str:
    """
    Return the name of a task instance's work: ``<dag id>/<task id>/<run id>/<map index>``.

    The try number is not part of it: a retry, and a task that was cleared, get the same name, so they take over the
    leases of the try before them. Two task instances never share a name. The map index of a task that is not mapped
    is -1.

    :param context: of the task instance.
    """
    instance = context["ti"]
    index = -1 if instance.map_index is None else instance.map_index
    return "/".join(_part(part) for part in (instance.dag_id, instance.task_id, instance.run_id, str(index)))


def _part(text: str) -> str:
    """Encode the separator, so that no two lists of parts are joined into the same name."""
    return text.replace("%", "%25").replace("/", "%2F")
