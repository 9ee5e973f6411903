"""Publish a message when a task or a DAG run ends, or misses its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_provider_sluicegate.compat import AirflowException
from airflow_provider_sluicegate.places import named_place
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from sluicegate import Payload
    from sluicegate.place import Place

__all__ = ["RedisQueueNotifier", "send_redis_queue_notification"]

_OF_TASK = ("dag_id", "task_id", "run_id", "map_index", "try_number", "state")


class RedisQueueNotifier(BaseNotifier):
    """
    Publish one message to a Sluicegate queue or stream: as a callback of a task or a DAG, or of a deadline.

    Without ``message`` it is a dict that names what happened: ``dag_id``, ``run_id`` and ``state``; for a task also
    ``task_id``, ``map_index`` and ``try_number``, for a DAG run Airflow's ``reason``, and for a deadline ``deadline``,
    the time that was missed. Errors, parameters and the run's conf are left out, because they may hold secrets.

    **Delivery semantics.** One call publishes one message, whose consumers get it at least once. Airflow runs a
    callback at most once per event, after it has stored the state of the task or run: if that process is killed, the
    notification is lost. When Redis cannot be reached, the notifier retries for 10 seconds (``retry_budget_seconds``),
    because the task's worker waits for it. Then it fails with an error that names the queue and the connection; Airflow
    logs it, and the state of the task or run stays as it is.

    .. code-block:: python

        DAG("orders", on_failure_callback=RedisQueueNotifier("failures"))
        DAG("orders", on_success_callback=RedisQueueNotifier("done", {"run": "{{ run_id }}", "day": "{{ ds }}"}))

    :param queue_name: the name of the queue. (templated)
    :param message: a text, or a dict or a list, which is stored as JSON; None for the dict above. (templated)
    :param stream: the name of a stream, instead of ``queue_name``. (templated)
    :param headers: names and texts that the message carries. (templated)
    :param queue_options: further options of :class:`sluicegate.RedisMessageQueue`, such as
        ``{"get_deduplication_key": "run_id"}``.
    :param redis_conn_id: the connection. (templated)
    :param kwargs: of Airflow's ``BaseNotifier``, which gives the context of a deadline here.
    """

    template_fields: Sequence[str] = ("queue_name", "stream", "message", "headers", "redis_conn_id")

    def __init__(
        self,
        queue_name: str | None = None,
        message: Payload | None = None,
        *,
        stream: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.stream = stream
        self.message = message
        self.headers = headers
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id

    def render_template_fields(self, context: Context, jinja_env: jinja2.Environment | None = None) -> None:
        """Render the fields, also to an empty text: Airflow below 3.3 would keep the template as the queue's name."""
        environment = jinja_env or self.get_template_env(dag=context.get("dag"))
        for name in self.template_fields:
            setattr(self, name, self.render_template(getattr(self, name), context, environment))

    def notify(self, context: Context) -> None:
        """
        Publish the message: as a callback of tasks and DAGs, and of deadlines by ``SyncCallback``.

        :raises AirflowException: it could not be published; names the queue and the connection.
        """
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

        with self._naming_the_place(), RedisQueueHook(self.redis_conn_id) as hook:
            queue = hook.open_place(self._place, **self._options)
            self._log_outcome(queue.publish(self._payload(context), headers=self.headers))

    async def async_notify(self, context: Context) -> None:
        """
        Publish the message without blocking the event loop: for deadlines by ``AsyncCallback``, in the triggerer.

        :raises AirflowException: it could not be published; names the queue and the connection.
        """
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

        with self._naming_the_place():
            async with RedisQueueHook(self.redis_conn_id) as hook:
                queue = await hook.aopen_place(self._place, **self._options)
                self._log_outcome(await queue.publish(self._payload(context), headers=self.headers))

    @property
    def _place(self) -> Place:
        return named_place(self.queue_name, self.stream)

    @property
    def _options(self) -> dict[str, Any]:
        return {"retry_budget_seconds": 10, **options_of(self.queue_options)}

    def _payload(self, context: Context) -> Payload:
        return _event_of(context) if self.message is None else self.message

    def _log_outcome(self, is_new: bool) -> None:
        outcome = "was published" if is_new else "is a duplicate of one before, and was refused"
        self.log.info("%s: the notification %s", self._place, outcome)

    @contextmanager
    def _naming_the_place(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            name = f"queue {self.queue_name!r}" if self.stream is None else f"stream {self.stream!r}"
            raise AirflowException(
                f"the notification could not be published to {name} on connection {self.redis_conn_id!r}: {error}"
            ) from error


send_redis_queue_notification = RedisQueueNotifier


def _event_of(context: Any) -> dict[str, Any]:
    """Return what happened: to a task, to a DAG run, or to a deadline, whose context holds plain values."""
    run = context.get("dag_run")
    if "deadline" in context:
        found = {"dag_id": run["dag_id"], "run_id": run["dag_run_id"], "state": run["state"]}
        found["deadline"] = str(context["deadline"]["deadline_time"])
    elif "reason" in context:  # beside the last task of the run, which is not what this is about
        found = {"dag_id": context["dag"].dag_id, "run_id": context["run_id"], "state": getattr(run, "state", None)}
        found["reason"] = context["reason"]
    else:
        found = {name: getattr(context["ti"], name, None) for name in _OF_TASK}
    return {name: getattr(value, "value", value) for name, value in found.items() if value is not None}
