"""Move dead letters back to their queue, and delete what a queue holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sluicegate.draining import nothing_yet
from airflow_provider_sluicegate.failures import fail_at_once
from airflow_provider_sluicegate.places import ConsumerOperator, value_of
from airflow_provider_sluicegate.queue_options import options_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluicegate import DeadMessage
    from sluicegate.consumer import QueueConsumer

__all__ = ["RedisQueuePurgeOperator", "RedisQueueRedriveOperator"]
_NOWHERE = ("", "None")  # what a template makes of the `after` of a redrive that came to its end


class RedisQueueRedriveOperator(ConsumerOperator):
    """
    Move dead letters back to the end of their queue, with their deliveries reset; those of a group back to that group.

    The report in XCom holds ``queue`` (or ``stream`` and ``group``), ``redriven``, ``blocked`` (another message holds
    the deduplication key, or the value is none of Sluicegate's), ``scanned``, ``after`` and ``dry_run``. ``after`` is
    where a ``limit`` or a full queue stopped it; a later task continues there with the same filters.

    **Delivery semantics.** Each dead letter moves once, in bounded steps that can be repeated: a retry moves those that
    are left. Messages that die while it works stay dead. A redriven message is delivered at least once again, to
    whatever consumes the queue; messages keep their ids.

    .. code-block:: python

        RedisQueueRedriveOperator(
            task_id="again", queue_name="orders", reason="handler_error", older_than_seconds=3600, limit=1000
        )

    :param reason: only dead letters buried for this reason, such as ``"max_delivery_count"`` or ``"handler_error"``.
        (templated)
    :param older_than_seconds: only those buried at least this long ago.
    :param deduplication_key: only those published under this key. (templated)
    :param ids: only these messages, as a list. (templated)
    :param where: only those for which this function of a :class:`sluicegate.DeadMessage` returns true.
    :param limit: the most dead letters to move; None for all.
    :param after: the ``after`` of an earlier report. (templated)
    :param page_size: dead letters that are read and moved per step, from 1 to 1,000.
    :param dry_run: move nothing, and count in ``redriven`` what would be moved. (templated)
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`. The
        queue's option ``max_pending_length`` bounds what is moved.
    """

    template_fields: Sequence[str] = (
        *ConsumerOperator.template_fields,
        "reason",
        "deduplication_key",
        "ids",
        "after",
        "is_dry_run",
    )
    shallow_copy_attrs: Sequence[str] = ("where",)
    ui_color = "#f5e6c8"

    def __init__(
        self,
        *,
        reason: str | None = None,
        older_than_seconds: float | None = None,
        deduplication_key: str | None = None,
        ids: Iterable[str] | None = None,
        where: Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        after: str | None = None,
        page_size: int = 250,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reason = reason
        self.older_than_seconds = older_than_seconds
        self.deduplication_key = deduplication_key
        self.ids = ids
        self.where = where
        self.limit = limit
        self.after = after
        self.page_size = page_size
        self.is_dry_run = dry_run  # `dry_run` is a method of Airflow's operators

    def execute(self, context: Context) -> dict[str, Any]:
        """
        Move the dead letters.

        :return: the report.
        :raises AirflowFailException: an argument or the connection cannot work as given.
        """
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

        with fail_at_once():
            self._check()
            place = self.place
            with RedisQueueHook(self.redis_conn_id) as hook:
                queue = hook.open_place(place, **options_of(self.queue_options))
                done = queue.redrive(
                    reason=self.reason,
                    older_than_seconds=self.older_than_seconds,
                    deduplication_key=self.deduplication_key,
                    ids=self.ids,
                    where=self.where,
                    limit=self.limit,
                    after=None if self.after in _NOWHERE else self.after,
                    page_size=self.page_size,
                    dry_run=self.is_dry_run,
                )
                if done.scanned == 0:
                    self.log.info("%s: %s", place, _why_none(queue))
        self.log.info(
            "%s: %d dead letters %s, %d are blocked, %d were looked at%s",
            *(place, done.redriven, "would be redriven" if self.is_dry_run else "are redriven"),
            *(done.blocked, done.scanned, "" if done.after is None else "; more may be left"),
        )
        return {
            **value_of(place),
            "redriven": done.redriven,
            "blocked": done.blocked,
            "scanned": done.scanned,
            "after": done.after,
            "dry_run": self.is_dry_run,
        }

    def _check(self) -> None:
        from sluicegate import checks
        from sluicegate.errors import ConfigurationError

        _check_flag("dry_run", self.is_dry_run)
        checks.callback("where", self.where)
        checks.synchronous("where", self.where)
        if isinstance(self.ids, str):
            raise ConfigurationError(
                "ids must be a list of message ids, not a text; give the output of a task (`task.output`), or let the "
                "DAG render native objects (render_template_as_native_obj=True)"
            )


class RedisQueuePurgeOperator(ConsumerOperator):
    """
    Delete what a queue holds in one or more states, and free the deduplication keys of these messages.

    Of a group, it deletes what that group holds or has not read; the stream and its other groups keep the messages.
    The report in XCom holds ``queue`` (or ``stream`` and ``group``), ``deleted`` (a count per state), ``total`` and
    ``dry_run``.

    **Delivery semantics.** Deleted messages are gone and are never delivered. Each state is emptied of what is in it
    when its turn comes; what enters it later stays, but a retry or a cleared task deletes that too. Messages in flight
    are not touched, and may return to the queue afterwards.

    .. code-block:: python

        RedisQueuePurgeOperator(task_id="clean", queue_name="orders", state="dead", dry_run=True)

    :param state: ``"pending"``, ``"returned"``, ``"delayed"``, ``"dead"``, ``"completed"`` or ``"failed"``, or a list
        of them. (templated)
    :param everything: True instead of a state: all six.
    :param dry_run: delete nothing, and count what would be deleted. (templated)
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, with ``queue_options`` and ``redis_conn_id``: see
        :class:`~airflow_provider_sluicegate.places.ConsumerOperator`.
    """

    template_fields: Sequence[str] = (*ConsumerOperator.template_fields, "state", "is_dry_run")
    ui_color = "#f5d5cc"

    def __init__(
        self,
        *,
        state: str | Sequence[str] | None = None,
        everything: bool = False,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.state = state
        self.everything = everything
        self.is_dry_run = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """
        Delete the messages.

        :return: the report.
        :raises AirflowFailException: an argument or the connection cannot work as given; then nothing was deleted.
        """
        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
        from sluicegate.purging import count_states

        with fail_at_once():
            states = self._states()
            place = self.place
            with RedisQueueHook(self.redis_conn_id) as hook:
                queue = hook.open_place(place, **options_of(self.queue_options))
                if self.is_dry_run:
                    deleted = count_states(queue, states)
                else:
                    deleted = {state: queue.purge(state) for state in states}
                in_flight = queue.depth().in_flight
        total = sum(deleted.values())
        self.log.info(
            "%s: %d %s (%s); %d messages are in flight and stay",
            *(place, total, "would be deleted" if self.is_dry_run else "are deleted"),
            *(", ".join(f"{count} {state}" for state, count in deleted.items()), in_flight),
        )
        return {**value_of(place), "deleted": deleted, "total": total, "dry_run": self.is_dry_run}

    def _states(self) -> tuple[str, ...]:
        from sluicegate.purging import states_of

        _check_flag("dry_run", self.is_dry_run)
        _check_flag("everything", self.everything)
        return states_of(self.state, everything=self.everything)


def _check_flag(name: str, value: object) -> None:
    """Refuse what is no bool: a template renders the text 'False', which counts as true."""
    from sluicegate.errors import ConfigurationError

    if not isinstance(value, bool):
        raise ConfigurationError(
            f"{name} must be True or False, not {value!r}; a template gives a bool only in a DAG with "
            "render_template_as_native_obj=True"
        )


def _why_none(queue: QueueConsumer) -> str:
    depth = queue.depth()
    if depth.published_total == 0:
        return nothing_yet(queue)
    return f"there was no dead letter to look at, of {depth.dead}"
