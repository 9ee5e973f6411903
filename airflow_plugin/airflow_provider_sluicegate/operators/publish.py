"""Publish messages from a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset

from airflow_provider_sluicegate.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    worker_lag_seconds,
)
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.hidden import Hidden, HidingPartial, hidden
from airflow_provider_sluicegate.lineage import ReportsLineage
from airflow_provider_sluicegate.places import PlaceOperator
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from airflow.sdk import Context, ObjectStoragePath, XComArg

    from sluicegate import RedisMessageQueue
    from sluicegate.bulk.reader import Reader
    from sluicegate.core.deduplication import KeySource
    from sluicegate.core.durability import DurabilityOption
    from sluicegate.json_default import JsonDefault
    from sluicegate.streams import RedisStreamQueue

__all__ = ["RedisQueuePublishOperator"]


class RedisQueuePublishOperator(ReportsLineage, PlaceOperator):
    """
    Publish messages into a Sluicegate queue or stream, in batches, and refuse duplicates.

    The operator streams its input: one batch is in memory, however long the file or the generator is. The report in
    XCom holds ``queue`` (or ``stream``), ``published``, ``duplicates``, ``dropped``, ``batches``, ``seconds``,
    ``first_message_id`` and ``last_message_id``, and never a payload. The events of assets in ``outlets`` have the same
    in their ``extra``.

    **Delivery semantics.** Each batch takes effect whole or not at all, and sending it again after a lost reply
    publishes nothing twice. When the task fails midway, the batches before stay published, and the error says how many.
    An error that another try would meet again, in an argument, the file's format or a payload, fails the task at once.
    When Airflow stops the task, it ends at once; the current batch may be published. With a ``deduplication_key``, a
    retry or a cleared task publishes only the missing messages: the queue refuses the others and counts them in
    ``duplicates``, for ``deduplication_window_seconds`` after their publish (one hour by default; make it longer than
    your retries take). With a ``batch_id``, key or not, a retry and a cleared task rejoin their batch and publish
    what is missing of it, as long as they read the same messages in the same order. Without either, a retry publishes
    everything again. Consumers receive each message at least once.

    **Templates and secrets.** ``queue_name``, ``stream``, ``path``, ``deduplication_key``, ``headers``,
    ``delay_seconds``, ``due_at`` and ``redis_conn_id`` are rendered. Messages are data: they are not rendered, and they
    appear neither in the rendered fields (which show their number) nor in XCom nor in the log. For values of the run,
    use a function: it receives the context.

    .. code-block:: python

        RedisQueuePublishOperator(
            task_id="publish",
            queue_name="orders",
            path="/data/orders-{{ dag_run.run_after | ds }}.csv.gz",
            deduplication_key="{tenant}:{order_id}",
        )

    :param messages: a list or another iterable; the output of a task; or a function that returns an iterable or is a
        generator, called with the entries of the context that its parameters name. A message is a dict or a list
        (stored as JSON), a str, or bytes. Give either this or ``path``.
    :param path: a file to read where the task runs: ``.jsonl``, ``.ndjson`` or ``.json`` with one object per line,
        or ``.csv`` with a header; each also with ``.gz`` or ``.zip``; or ``.parquet``. It is a path, an
        ``ObjectStoragePath`` or a URL such as ``s3://conn_id@bucket/orders.csv``, whose connection is optional.
        (templated)
    :param deduplication_key: identifies a message: a field name, a list of field names, a template such as
        ``"{tenant}:{order_id}"`` (single braces are Sluicegate's, double ones Jinja's), a function, or ``"position"``:
        this task instance and the number of the message in its input, whose order must stay. (templated)
    :param batch_id: names all messages as one batch of a queue, which :class:`RedisQueueBatchSensor` waits for; the
        XCom ``batch_id`` has it. Include the run, as in ``"orders/{{ run_id }}"``. (templated)
    :param batch_size: messages per call, from 1 to 1,000.
    :param headers: names and texts that every message carries. (templated)
    :param delay_seconds: how long a message of a queue cannot be claimed, counted from the publish of its batch.
        (templated)
    :param due_at: instead, when the messages become claimable: a datetime with a zone, or its text in ISO 8601.
        (templated)
    :param durability: what each batch waits for: ``"memory"`` (Redis has it), ``"fsync"`` (it is on disk; Redis 7.2),
        or ``sluicegate.replicated(n)``.
    :param transform: a function from a message as it was read to the payload to publish; None drops the message. Use
        it to convert types: the cells of a CSV are text.
    :param empty_as_null: publish an empty CSV cell as null instead of as an empty text.
    :param json_default: how values are written that JSON does not have, such as those of an SQL hook: ``"iso"`` for
        dates as ISO 8601 and decimals as text, or a function of the value.
    :param skip_if_empty: skip the task, and so what depends on it, when there is no message.
    :param deferrable: when the queue is at ``max_pending_length`` (a queue option), wait in the triggerer until a batch
        fits, instead of failing. It needs a ``batch_id``, or a ``deduplication_key`` whose window exceeds the whole
        wait: after each wait the messages are read again, and the published ones are refused.
    :param progress_interval_seconds: the time between two lines of progress in the log.
    :param kwargs: ``queue_name`` or ``stream``, with ``queue_options`` (such as ``deduplication_window_seconds``) and
        ``redis_conn_id``: see :class:`~airflow_provider_sluicegate.places.PlaceOperator`.
    """

    # `messages` is a template field so that a task whose output it is becomes an upstream task, also in `partial`.
    template_fields: Sequence[str] = (
        *PlaceOperator.template_fields,
        "messages",
        "path",
        "deduplication_key",
        "batch_id",
        "headers",
        "delay_seconds",
        "due_at",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"headers": "json"}
    ui_color = "#dcecf7"
    lineage_direction = "output"

    def __init__(
        self,
        *,
        messages: Iterable[Any] | Callable[..., Iterable[Any]] | XComArg | None = None,
        path: str | os.PathLike[str] | ObjectStoragePath | None = None,
        deduplication_key: KeySource | None = None,
        batch_id: str | None = None,
        batch_size: int = 1000,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | str = 0,
        due_at: datetime | str | None = None,
        durability: DurabilityOption = "memory",
        transform: Callable[[Any], Any] | None = None,
        empty_as_null: bool = True,
        json_default: JsonDefault | None = None,
        skip_if_empty: bool = False,
        deferrable: bool = False,
        progress_interval_seconds: float = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.messages = messages
        self.path = path
        self.deduplication_key = Hidden(deduplication_key) if callable(deduplication_key) else deduplication_key
        self.batch_id = batch_id
        self.batch_size = batch_size
        self.headers = headers
        self.delay_seconds = delay_seconds
        self.due_at = due_at
        self.durability = durability
        self.transform = transform
        self.empty_as_null = empty_as_null
        self.json_default = json_default
        self.skip_if_empty = skip_if_empty
        self.deferrable = deferrable
        self.progress_interval_seconds = progress_interval_seconds
        self._can_be_stopped = False
        self._advice = "nothing was published"

    @property
    def messages(self) -> Any:
        """Return what to publish, hidden from Airflow, which renders, calls and stores a template field."""
        return self._messages

    @messages.setter
    def messages(self, value: Any) -> None:
        # Airflow sets this again once it has resolved the output of a task.
        self._messages = hidden(value)

    @classmethod
    def partial(cls, **kwargs: Any) -> HidingPartial:  # type: ignore[override]
        """Return the operator for ``expand``; the messages of mapped tasks are hidden as those of a plain one are."""
        return HidingPartial(super().partial(**kwargs))

    def execute(self, context: Context) -> dict[str, Any]:
        """
        Publish all messages.

        :return: the report.
        :raises TaskDeferred: the queue is full, and the operator is deferrable.
        :raises AirflowFailException: an argument, the connection, the file's format or a payload cannot work.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set.
        :raises FileNotFoundError: the file is not there.
        :raises PublishStoppedError: reading or publishing failed midway, and a retry may help.
        """
        return self._execute(context, None)

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], earlier: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """
        Publish what is missing, now that the queue has room.

        :param context: of the task.
        :param event: of :class:`~airflow_provider_sluicegate.triggers.room.RedisQueueRoomTrigger`.
        :param earlier: the report so far; ``dag.test()`` forgets it and reports the last part.
        :return: the report of the whole publish.
        """
        if event["status"] == "error":
            raise (AirflowFailException if event["is_permanent"] else AirflowException)(event["error"])
        return self._execute(context, earlier)

    def _execute(self, context: Context, earlier: dict[str, Any] | None) -> dict[str, Any]:
        self._can_be_stopped = True
        try:
            with fail_at_once():
                report = self._publish(context, earlier)
        except _Stopped:
            raise AirflowException(f"{self.place}: the task was stopped; {self._advice}") from None
        finally:
            self._can_be_stopped = False
        if self.skip_if_empty and not (report["batches"] or report["dropped"]):
            if self.do_xcom_push:
                context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"there was no message to publish to {self.place}")
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(report)
        return report

    def on_kill(self) -> None:
        """Stop reading and publishing at once: Airflow stops this task. The counts are logged."""
        if self._can_be_stopped:
            self._can_be_stopped = False
            raise _Stopped

    def _publish(self, context: Context, earlier: dict[str, Any] | None) -> dict[str, Any]:
        from airflow_provider_sluicegate.due import delay_of, due_time_of
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
        from airflow_provider_sluicegate.stats import emit_counts
        from sluicegate.bulk.publisher import Publisher, PublishStoppedError
        from sluicegate.errors import QueueBackpressureError

        reader = self._reader(context)
        options = self._queue_options(reader, context)
        place = self.place
        self._check_batch_id(context)
        with RedisQueueHook(self.redis_conn_id) as hook:
            queue = hook.open_place(place, **options)
            self._check_deferrable(queue)
            publisher = Publisher(
                queue, reader, self.log, self.progress_interval_seconds, earlier, place, self.batch_id
            )
            self._advice = publisher.advice("running it again", may_have_published=True)
            try:
                return publisher.run(
                    batch_size=self.batch_size,
                    headers=self.headers,
                    delay_seconds=delay_of(self.delay_seconds),
                    due_at=due_time_of(self.due_at),
                    durability=self.durability,
                )
            except PublishStoppedError as stopped:
                if self.deferrable and isinstance(stopped.__cause__, QueueBackpressureError):
                    self._wait_for_room(queue, publisher.report())
                if stopped.is_permanent:
                    raise AirflowFailException(str(stopped)) from stopped
                raise
            finally:
                self.lineage_count = publisher.published
                # A publish that was deferred finds its earlier messages again, as duplicates.
                duplicates = max(0, publisher.duplicates - (earlier or {}).get("published", 0))
                emit_counts(place, {"published": publisher.published, "duplicates": duplicates})

    def _check_batch_id(self, context: Context) -> None:
        """Refuse an id that rendered to nothing, and let other tasks have the one that there is."""
        from sluicegate.errors import ConfigurationError

        if self.batch_id is None:
            return
        if self.batch_id.strip() in ("", "None"):
            raise ConfigurationError(f"batch_id is {self.batch_id!r}; if it is a template, it rendered to nothing")
        if self.do_xcom_push:
            context["ti"].xcom_push(key="batch_id", value=self.batch_id)

    def _check_deferrable(self, queue: RedisMessageQueue | RedisStreamQueue) -> None:
        """
        Refuse to defer a publish that would publish messages twice, or never end.

        :raises ConfigurationError: says which option is missing.
        """
        from sluicegate.errors import ConfigurationError

        if not self.deferrable:
            return
        if self.place.stream:
            raise ConfigurationError(
                f"deferrable=True waits for room, and {self.place} is never full: its max_length removes what all "
                "groups have finished; leave deferrable out"
            )
        config = queue.session.config
        limit = config.max_pending_length
        if limit is None:
            raise ConfigurationError(
                'deferrable=True waits for room; say how much, in queue_options["max_pending_length"]'
            )
        has_key = config.get_deduplication_key is not None and config.deduplication_policy == "window"
        if not has_key and self.batch_id is None:
            raise ConfigurationError(
                "deferrable=True reads the messages again after each wait, so it needs a deduplication_key with the "
                'policy "window"; deduplication_key="position" serves where the messages have no key, or a batch_id'
            )
        if self.batch_size > limit:
            raise ConfigurationError(
                f"batch_size={self.batch_size} exceeds max_pending_length={limit}, so no batch would ever fit"
            )

    def _wait_for_room(self, queue: RedisMessageQueue, report: dict[str, Any]) -> None:
        """Defer until a batch fits."""
        from airflow_provider_sluicegate.triggers.room import RedisQueueRoomTrigger

        limit = queue.session.config.max_pending_length
        assert limit is not None  # checked before the publish
        self.log.info("queue %r is full; waiting in the triggerer until a batch fits", queue.name)
        self.defer(
            trigger=RedisQueueRoomTrigger(
                queue_name=queue.name,
                max_waiting=limit - self.batch_size,
                initial_delay_seconds=worker_lag_seconds(),
                redis_conn_id=self.redis_conn_id,
            ),
            method_name="execute_complete",
            kwargs={"earlier": report},
        )

    @property
    def _key_source(self) -> KeySource | None:
        key = self.deduplication_key
        return key.value if isinstance(key, Hidden) else key

    def _queue_options(self, reader: Reader, context: Context) -> dict[str, Any]:
        from airflow_provider_sluicegate.identity import run_id_of
        from sluicegate.checks import is_async
        from sluicegate.errors import ConfigurationError

        options = options_of(self.queue_options)
        if "get_deduplication_key" in options:
            raise ConfigurationError("give deduplication_key instead of get_deduplication_key in queue_options")
        if self.json_default is not None:
            options["json_default"] = self.json_default
        key = self._key_source
        if isinstance(key, str) and key.strip() in ("", "None"):
            raise ConfigurationError(f"deduplication_key is {key!r}; if it is a template, it rendered to nothing")
        if key == "position":
            if options.get("deduplication_policy", "window") != "window":
                raise ConfigurationError(
                    'deduplication_key="position" needs the deduplication_policy "window": a key that is freed by an '
                    "ack lets a retry publish that message again"
                )
            options["get_deduplication_key"] = reader.position_key(run_id_of(context))
        elif key is not None:
            # An async function stays as it is, so that the queue refuses it at once.
            options["get_deduplication_key"] = reader.watch(key) if callable(key) and not is_async(key) else key
        return options

    def _reader(self, context: Context) -> Reader:
        from airflow_provider_sluicegate.reading import iterable_of
        from airflow_provider_sluicegate.sources import MessageFile
        from airflow_provider_sluicegate.storage import find_file
        from sluicegate.bulk.reader import Reader
        from sluicegate.errors import ConfigurationError

        if (self.messages is None) == (self.path is None):
            raise ConfigurationError("give exactly one of messages and path")
        if self.path is not None:
            file = MessageFile(find_file(self.path), empty_as_null=self.empty_as_null)
            file.check()
            return Reader(file, file.describe, self.transform, self.batch_size, is_at_hand=True)
        messages = iterable_of(self.messages.value, context)
        return Reader(
            enumerate(messages, start=1),
            lambda number: f"message {number}",
            self.transform,
            self.batch_size,
            is_at_hand=isinstance(messages, Sized),
        )


class _Stopped(BaseException):
    """Ends a publish from a signal handler; no code between that catches errors stops it."""
