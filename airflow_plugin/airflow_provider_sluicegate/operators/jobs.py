"""Enqueue jobs from a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_sluicegate.compat import AirflowSkipException
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.hidden import HidingPartial, hidden
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.links.queue import QueueLink
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from sluicegate.place import Place

__all__ = ["RedisJobEnqueueOperator"]

_BYTES_PER_ID = 48


class RedisJobEnqueueOperator(ReportsLineage, BaseOperator):
    """
    Enqueue jobs, and hand on their ids.

    The XCom is the list of ids, in the order of the payloads, so that :class:`RedisJobSensor` can wait for them and
    tasks can be mapped over them. Where the key of a payload is held (``get_deduplication_key`` in ``queue_options``),
    its id is that of the job that holds it. The ids must fit into ``max_xcom_bytes``; without them the XCom is None,
    and the jobs are waited for by their ``batch_id``, which is an XCom of that key.

    **Delivery semantics.** Each call of 1,000 jobs takes effect whole or not at all. With a ``batch_id`` a retry, and a
    task that is cleared, rejoins its batch: it enqueues what is missing and nothing twice, as long as it reads the same
    payloads in the same order, and gets the same ids. Without one, a retry enqueues everything again, unless
    deduplication keys refuse it. Workers get each job at least once.

    **Templates and secrets.** Payloads are data: they are not rendered, and they appear neither in the rendered fields
    nor in XCom nor in the log. For values of the run, use a function: it receives the context.

    .. code-block:: python

        RedisJobEnqueueOperator(
            task_id="jobs", queue_name="reports", payloads=reports, kind="pdf", batch_id="reports/{{ run_id }}"
        )

    :param queue_name: the name of the queue of jobs. (templated)
    :param payloads: a list or another iterable of dicts or lists; the output of a task; or a function that returns an
        iterable or is a generator, called with the entries of the context that its parameters name.
    :param kind: of all jobs; None: the field ``kind`` of each payload. (templated)
    :param batch_id: names the jobs as one batch. (templated)
    :param headers: names and texts that every job carries. (templated)
    :param delay_seconds: how long no worker may claim the jobs. (templated)
    :param max_xcom_bytes: the most bytes of the ids.
    :param skip_if_empty: skip the task, and so what depends on it, when there is no payload.
    :param queue_options: options of :class:`sluicegate.jobs.RedisJobQueue`, such as ``result_ttl_seconds``.
    :param redis_conn_id: the connection. (templated)
    """

    # `payloads` is a template field so that a task whose output it is becomes an upstream task, also in `partial`.
    template_fields: Sequence[str] = (
        "queue_name",
        "payloads",
        "kind",
        "batch_id",
        "headers",
        "delay_seconds",
        "redis_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"headers": "json"}
    operator_extra_links = (QueueLink(),)
    ui_color = "#dcecf7"
    lineage_direction = "output"

    def __init__(
        self,
        *,
        queue_name: str,
        payloads: Iterable[Any] | Callable[..., Iterable[Any]] | XComArg,
        kind: str | None = None,
        batch_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | str = 0,
        max_xcom_bytes: int = 48_000,
        skip_if_empty: bool = False,
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.payloads = payloads
        self.kind = kind
        self.batch_id = batch_id
        self.headers = headers
        self.delay_seconds = delay_seconds
        self.max_xcom_bytes = max_xcom_bytes
        self.skip_if_empty = skip_if_empty
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id

    @property
    def payloads(self) -> Any:
        """Return what to enqueue, hidden from Airflow, which renders, calls and stores a template field."""
        return self._payloads

    @payloads.setter
    def payloads(self, value: Any) -> None:
        # Airflow sets this again once it has resolved the output of a task.
        self._payloads = hidden(value)

    @property
    def place(self) -> Place:
        """Return the queue, for lineage."""
        from sluicegate.place import Place

        return Place(self.queue_name)

    @classmethod
    def partial(cls, **kwargs: Any) -> HidingPartial:  # type: ignore[override]
        """Return the operator for ``expand``; the payloads of mapped tasks are hidden as those of a plain one are."""
        return HidingPartial(super().partial(**kwargs), "payloads")

    def execute(self, context: Context) -> list[str] | None:
        """
        Enqueue the jobs.

        :return: their ids; None if they do not fit into ``max_xcom_bytes``.
        :raises AirflowFailException: an argument, the connection or a payload cannot work.
        :raises AirflowSkipException: there was no payload, and ``skip_if_empty`` is set.
        """
        from airflow_provider_sluicegate.due import delay_of
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
        from airflow_provider_sluicegate.payloads import size_of
        from airflow_provider_sluicegate.stats import emit_counts

        with fail_at_once():
            payloads = self._read(context)
            if self.skip_if_empty and not payloads:
                raise AirflowSkipException(f"there was no job to enqueue in queue {self.queue_name!r}")
            batch_id = self._batch_id(len(payloads))
            with RedisQueueHook(self.redis_conn_id) as hook:
                jobs = hook.get_jobs(self.queue_name, **options_of(self.queue_options))
                report = jobs.enqueue_many(
                    payloads,
                    kind=None if self.kind in ("", "None") else self.kind,
                    batch_id=batch_id,
                    headers=self.headers,
                    delay_seconds=delay_of(self.delay_seconds),
                )
        self.lineage_count = report.accepted
        emit_counts(self.queue_name, {"published": report.accepted, "duplicates": report.duplicates})
        self.log.info(
            "queue %r: %d jobs enqueued, %d duplicates refused", self.queue_name, report.accepted, report.duplicates
        )
        if batch_id is not None and self.do_xcom_push:
            context["ti"].xcom_push(key="batch_id", value=batch_id)
        ids = list(report.ids)
        if size_of(ids) <= self.max_xcom_bytes:
            return ids
        self.log.warning(
            "queue %r: the ids of %d jobs do not fit into max_xcom_bytes=%d; wait for them by their batch_id",
            *(self.queue_name, len(ids), self.max_xcom_bytes),
        )
        return None

    def _read(self, context: Context) -> list[Any]:
        from airflow_provider_sluicegate.reading import iterable_of
        from sluicegate import checks
        from sluicegate.errors import ConfigurationError

        checks.count("max_xcom_bytes", self.max_xcom_bytes)
        if self.payloads is None:
            raise ConfigurationError("payloads is None; if it is the output of a task, see what that task returns")
        return list(iterable_of(self.payloads.value, context, "payloads"))

    def _batch_id(self, count: int) -> str | None:
        from sluicegate.errors import ConfigurationError

        if self.batch_id in ("", "None"):
            raise ConfigurationError(f"batch_id is {self.batch_id!r}; if it is a template, it rendered to nothing")
        if self.batch_id is None and count * _BYTES_PER_ID > self.max_xcom_bytes:
            raise ConfigurationError(
                f"the ids of {count} jobs do not fit into max_xcom_bytes={self.max_xcom_bytes}; give batch_id, such as "
                f"{self.task_id!r} with the run's id, and wait with RedisJobSensor(batch_id=…), or raise the limit"
            )
        return self.batch_id
