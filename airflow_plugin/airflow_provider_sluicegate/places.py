"""What an operator, sensor or trigger works on: a queue, a stream, or a group of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, XComArg

from airflow_provider_sluicegate.links.queue import QueueLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluicegate.consumer import QueueConsumer
    from sluicegate.place import Place

__all__ = ["ConsumerOperator", "PlaceOperator", "is_decided_later", "named_place", "place_of", "value_of"]

_NOTHING = ("", "None")  # what a template makes of a parameter that is null


class PlaceOperator(BaseOperator):
    """
    Declares which queue or stream an operator publishes to: exactly one of the two.

    :param queue_name: the name of the queue; ``queue`` is Airflow's own argument, the executor's queue. (templated)
    :param stream: instead, the name of a stream. (templated)
    :param queue_options: further options of :class:`sluicegate.RedisMessageQueue`, of the stream or of the group.
    :param redis_conn_id: the connection. (templated)
    :raises ConfigurationError: not exactly one of ``queue_name`` and ``stream``; raised when the DAG file is read,
        unless templates decide.
    """

    template_fields: Sequence[str] = ("queue_name", "stream", "redis_conn_id")
    operator_extra_links = (QueueLink(),)

    def __init__(
        self,
        *,
        queue_name: Any = None,
        stream: Any = None,
        queue_options: Mapping[str, Any] | None = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_name = queue_name
        self.stream = stream
        self.queue_options = queue_options
        self.redis_conn_id = redis_conn_id
        self._refuse_unclear_place(queue_name, stream)

    @property
    def place(self) -> Place:
        """Return what the rendered arguments name."""
        return named_place(self.queue_name, self.stream)

    def _refuse_unclear_place(self, queue_name: Any, stream: Any) -> None:
        if not any(is_decided_later(value) for value in (queue_name, stream)):
            _refuse_both_or_neither(queue_name, stream)


class ConsumerOperator(PlaceOperator):
    """
    Declares which queue, or group of a stream, an operator reads: exactly one of the two.

    :param group: the name of a group of the stream; a stream has no consumers but its groups. (templated)
    :param kwargs: as for :class:`PlaceOperator`.
    """

    template_fields: Sequence[str] = ("queue_name", "stream", "group", "redis_conn_id")

    def __init__(self, *, group: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        if not any(is_decided_later(value) for value in (self.queue_name, self.stream, group)):
            _refuse_unclear_group(self.queue_name, self.stream, group)

    @property
    def place(self) -> Place:
        """Return what the rendered arguments name."""
        return named_place(self.queue_name, self.stream, self.group, is_read=True)


def named_place(queue_name: Any = None, stream: Any = None, group: Any = None, *, is_read: bool = False) -> Place:
    """
    Return the place that rendered arguments name.

    A ``stream`` and a ``group`` that a template rendered to nothing count as left out, and so does a ``queue_name``
    beside a stream, so that parameters of a DAG can decide.

    :param queue_name: the name of a queue.
    :param stream: instead, the name of a stream.
    :param group: the name of a group of the stream.
    :param is_read: whether messages are read, which needs the group of a stream.
    :raises ConfigurationError: not exactly one of queue and stream, or a group that is missing or too much.
    """
    from sluicegate.core.keys import GroupKeys, QueueKeys, StreamKeys
    from sluicegate.place import Place

    stream, group = _left_out(stream), _left_out(group)
    if stream is not None:
        queue_name = _left_out(queue_name)
    _refuse_both_or_neither(queue_name, stream)
    if is_read:
        _refuse_unclear_group(queue_name, stream, group)
    # Blank and too long names are refused here, before anything is looked up.
    if queue_name is not None:
        QueueKeys(queue_name)
    elif group is None:
        StreamKeys(stream)
    else:
        GroupKeys(stream, group)
    return Place.named(queue_name, stream=stream, group=group)


def value_of(place: Place) -> dict[str, str]:
    """Return a place as XComs and events carry it: ``queue``, or ``stream`` and the ``group`` if it names one."""
    if not place.stream:
        return {"queue": place.name}
    return {"stream": place.name} if place.group is None else {"stream": place.name, "group": place.group}


def place_of(queue: QueueConsumer) -> Place:
    """Return what a consumer is made for."""
    from sluicegate.place import Place

    group = queue.group_name
    return Place(queue.name, stream=group is not None, group=group)


def _refuse_both_or_neither(queue_name: Any, stream: Any) -> None:
    from sluicegate.errors import ConfigurationError, OptionTypeError

    if queue_name is not None and stream is not None:
        raise ConfigurationError(
            f"queue_name={queue_name!r} and stream={stream!r} are both given; leave out the one that is not meant"
        )
    if queue_name is None and stream is None:
        raise OptionTypeError("give queue_name, the name of a queue, or stream, the name of a stream")


def _refuse_unclear_group(queue_name: Any, stream: Any, group: Any) -> None:
    from sluicegate.errors import ConfigurationError

    if queue_name is not None and group is not None:
        raise ConfigurationError(
            f"group={group!r} is of a stream, and queue_name={queue_name!r} names a queue; give stream instead of "
            "queue_name, or leave group out"
        )
    if stream is not None and group is None:
        raise ConfigurationError(f"stream={stream!r} is read by its groups; give group, the name of one of them")


def _left_out(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip() in _NOTHING else value


def is_decided_later(value: Any) -> bool:
    """Return whether a template or the output of a task decides a value."""
    return isinstance(value, XComArg) or (isinstance(value, str) and ("{{" in value or "{%" in value))
