"""Publish messages from a task."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator, XComArg

from airflow_provider_sluicegate.compat import AirflowFailException, AirflowSkipException, keyword_arguments
from airflow_provider_sluicegate.due import delay_of, due_time_of
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.publishing import Publisher, PublishStoppedError, Reader
from airflow_provider_sluicegate.sources import MessageFile
from sluicegate.checks import is_async
from sluicegate.config import QueueConfig
from sluicegate.core.deduplication import KeySource
from sluicegate.core.durability import DurabilityOption
from sluicegate.errors import ConfigurationError
from sluicegate.json_default import JsonDefault

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

__all__ = ["RedisQueuePublishOperator"]


class RedisQueuePublishOperator(BaseOperator):
    """
    Publish messages into a Sluicegate queue, in batches, and refuse duplicates.

    The operator streams its input: one batch is in memory, however long the file or the generator is. The report in
    XCom holds ``queue``, ``published``, ``duplicates``, ``dropped``, ``batches``, ``seconds``,
    ``first_message_id`` and ``last_message_id``, and never a payload.

    **Delivery semantics.** Each batch takes effect whole or not at all, and sending it again after a lost reply
    publishes nothing twice. When the task fails midway, the batches before stay published, and the error says how many.
    An error that another try would meet again, in an argument, the file's format or a payload, fails the task at once.
    With a ``deduplication_key``, a retry or a cleared task publishes only the missing messages: the queue refuses the
    others and counts them in ``duplicates``, for ``deduplication_window_seconds`` after their publish (one hour by
    default; make it longer than your retries take). Without a key, a retry publishes everything again. Consumers
    receive each message at least once.

    **Templates and secrets.** ``queue_name``, ``path``, ``deduplication_key``, ``headers``, ``delay_seconds``,
    ``due_at`` and ``redis_conn_id`` are rendered. Messages are data: they are not rendered, and they appear neither in
    the rendered fields (which show their number) nor in XCom nor in the log. For values of the run, use a function: it
    receives the context.

    .. code-block:: python

        RedisQueuePublishOperator(
            task_id="publish",
            queue_name="orders",
            path="/data/orders-{{ dag_run.run_after | ds }}.csv.gz",
            deduplication_key="{tenant}:{order_id}",
        )

    :param queue_name: the name of the queue; ``queue`` is Airflow's own argument, the executor's queue. (templated)
    :param messages: a list or another iterable; the output of a task; or a function that returns an iterable or is a
        generator, called with the entries of the context that its parameters name. A message is a dict or a list
        (stored as JSON), a str, or bytes. Give either this or ``path``.
    :param path: a file to read where the task runs: ``.jsonl``, ``.ndjson`` or ``.json`` with one object per line,
        or ``.csv`` with a header; each also with ``.gz`` or ``.zip``. (templated)
    :param deduplication_key: identifies a message: a field name, a list of field names, a template such as
        ``"{tenant}:{order_id}"`` (single braces are Sluicegate's, double ones Jinja's), or a function. (templated)
    :param batch_size: messages per call, from 1 to 1,000.
    :param headers: names and texts that every message carries. (templated)
    :param delay_seconds: how long nobody may claim a message, counted from the publish of its batch. (templated)
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
    :param queue_options: further options of :class:`sluicegate.RedisMessageQueue`, such as
        ``deduplication_window_seconds``.
    :param progress_interval_seconds: the time between two lines of progress in the log.
    :param redis_conn_id: the connection. (templated)
    """

    # `messages` is a template field so that a task whose output it is becomes an upstream task, also in `partial`.
    template_fields: Sequence[str] = (
        "queue_name",
        "messages",
        "path",
        "deduplication_key",
        "headers",
        "delay_seconds",
        "due_at",
        "redis_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"headers": "json"}
    ui_color = "#dcecf7"

    def __init__(
        self,
        *,
        queue_name: str,
        messages: Iterable[Any] | Callable[..., Iterable[Any]] | XComArg | None = None,
        path: str | os.PathLike[str] | None = None,
        deduplication_key: KeySource | None = None,
        batch_size: int = 1000,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | str = 0,
        due_at: datetime | str | None = None,
        durability: DurabilityOption = "memory",
        transform: Callable[[Any], Any] | None = None,
        empty_as_null: bool = True,
        json_default: JsonDefault | None = None,
        skip_if_empty: bool = False,
        queue_options: Mapping[str, Any] | None = None,
        progress_interval_seconds: float = 10,
        redis_conn_id: str = RedisQueueHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.messages = messages
        self.path = path
        self.deduplication_key = _Hidden(deduplication_key) if callable(deduplication_key) else deduplication_key
        self.batch_size = batch_size
        self.headers = headers
        self.delay_seconds = delay_seconds
        self.due_at = due_at
        self.durability = durability
        self.transform = transform
        self.empty_as_null = empty_as_null
        self.json_default = json_default
        self.skip_if_empty = skip_if_empty
        self.queue_options = queue_options
        self.progress_interval_seconds = progress_interval_seconds
        self.redis_conn_id = redis_conn_id

    @property
    def messages(self) -> Any:
        """Return what to publish, hidden from Airflow, which renders, calls and stores a template field."""
        return self._messages

    @messages.setter
    def messages(self, value: Any) -> None:
        # Airflow sets this again once it has resolved the output of a task.
        self._messages = value if value is None or isinstance(value, (XComArg, _Hidden)) else _Hidden(value)

    def execute(self, context: Context) -> dict[str, Any]:
        """
        Publish all messages.

        :return: the report.
        :raises AirflowFailException: an argument, the connection, the file's format or a payload cannot work.
        :raises AirflowSkipException: there was no message, and ``skip_if_empty`` is set.
        :raises FileNotFoundError: the file is not there.
        :raises PublishStoppedError: reading or publishing failed midway, and a retry may help.
        """
        with fail_at_once():
            reader = self._reader(context)
            options = self._queue_options(reader)
            with RedisQueueHook(self.redis_conn_id) as hook:
                publisher = Publisher(
                    hook.get_queue(self.queue_name, **options),
                    reader,
                    self._window_seconds(options),
                    self.log,
                    self.progress_interval_seconds,
                )
                try:
                    report = publisher.run(
                        batch_size=self.batch_size,
                        headers=self.headers,
                        delay_seconds=delay_of(self.delay_seconds),
                        due_at=due_time_of(self.due_at),
                        durability=self.durability,
                    )
                except PublishStoppedError as stopped:
                    if stopped.is_permanent:
                        raise AirflowFailException(str(stopped)) from stopped
                    raise
        if self.skip_if_empty and not (report["batches"] or report["dropped"]):
            if self.do_xcom_push:
                context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"there was no message to publish to queue {self.queue_name!r}")
        return report

    @property
    def _key_source(self) -> KeySource | None:
        key = self.deduplication_key
        return key.value if isinstance(key, _Hidden) else key

    def _queue_options(self, reader: Reader) -> dict[str, Any]:
        options = dict(self.queue_options or {})
        if "get_deduplication_key" in options:
            raise ConfigurationError("give deduplication_key instead of get_deduplication_key in queue_options")
        if self.json_default is not None:
            options["json_default"] = self.json_default
        key = self._key_source
        if key is not None:
            # An async function stays as it is, so that the queue refuses it at once.
            options["get_deduplication_key"] = reader.watch(key) if callable(key) and not is_async(key) else key
        return options

    def _window_seconds(self, options: Mapping[str, Any]) -> float | None:
        """Return how long the queue refuses duplicates; None without deduplication."""
        if self.deduplication_key is None:
            return None
        window: float = options.get("deduplication_window_seconds", QueueConfig().deduplication_window_seconds)
        return window

    def _reader(self, context: Context) -> Reader:
        if (self.messages is None) == (self.path is None):
            raise ConfigurationError("give exactly one of messages and path")
        if self.path is not None:
            if not str(self.path).strip():
                raise ConfigurationError("path is empty; if it is a template, it rendered to nothing")
            file = MessageFile(Path(self.path), empty_as_null=self.empty_as_null)
            file.check()
            return Reader(file, lambda line: f"{file.path}, line {line}", self.transform, self.batch_size)
        messages = enumerate(self._iterable(context), start=1)
        return Reader(messages, lambda number: f"message {number}", self.transform, self.batch_size)

    def _iterable(self, context: Context) -> Iterable[Any]:
        messages = self.messages.value
        if callable(messages):
            messages = messages(**keyword_arguments(messages, context))
        if inspect.isawaitable(messages) or hasattr(messages, "__aiter__"):
            if inspect.iscoroutine(messages):
                messages.close()
            raise ConfigurationError("messages is asynchronous; give a plain function or generator")
        if isinstance(messages, str):
            raise ConfigurationError(
                "messages must be an iterable of messages, or a function that returns one, not a str; a template of a "
                "task's output is a text, so give messages=task.output"
            )
        if isinstance(messages, (bytes, Mapping)) or not isinstance(messages, Iterable):
            raise ConfigurationError(
                f"messages must be an iterable of messages, or a function that returns one, not {_kind(messages)}"
            )
        return messages


class _Hidden:
    """Hides the value of a template field, so that Airflow does not render, call or store it."""

    def __init__(self, value: Any) -> None:
        self.value: Any = _ReadOnce(value) if isinstance(value, Iterator) else value

    def __repr__(self) -> str:
        # Airflow stores and shows this text, so it must be the same each time the file is parsed.
        if callable(self.value):
            return getattr(self.value, "__qualname__", type(self.value).__qualname__)
        if isinstance(self.value, _ReadOnce):
            return "generator" if self.value.is_generator else "iterator"
        kind = type(self.value).__name__
        return f"{kind} of {len(self.value)}" if isinstance(self.value, Sized) else kind


class _ReadOnce:
    """Lets an iterator be read once: a retry that continued a half-read iterator would silently lose messages."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._read = False
        self.is_generator = inspect.isgenerator(iterator)

    def __iter__(self) -> Iterator[Any]:
        if self._read:
            raise ConfigurationError(
                "messages is an iterator, and an earlier try of this task has read from it; "
                "give the function that makes it, so that every try gets a new one"
            )
        self._read = True
        return self._iterator

    def __deepcopy__(self, memo: dict[int, Any]) -> _ReadOnce:
        return self


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a dict (wrap a single message in a list)"
    return "None" if value is None else f"a {type(value).__name__}"
