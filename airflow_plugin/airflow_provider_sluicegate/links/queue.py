"""Link a task instance to the page of its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_provider_sluicegate.compat import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["QueueLink"]


class QueueLink(BaseOperatorLink):
    """
    Lead from a task instance to the page of its queue.

    Airflow asks for the link once, on the worker, when the task has run. There is none where the connection has no page
    or the task's queue is not known.
    """

    name = "Queue"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the page; "" for none."""
        from airflow_provider_sluicegate.plugins.settings import PREFIX, connections, is_enabled, page_path
        from airflow_provider_sluicegate.plugins.tasks import place_of_fields

        arguments: dict[str, Any] = {
            name: getattr(operator, name) for name in operator.template_fields if hasattr(operator, name)
        }
        found = place_of_fields(arguments)
        if found is None or not is_enabled() or found.conn_id not in connections():
            return ""
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        return f"{base}{PREFIX}{page_path(found.conn_id, found.place, is_jobs=found.is_jobs)}"
