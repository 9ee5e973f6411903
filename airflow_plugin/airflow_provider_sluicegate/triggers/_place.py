"""Declares which queue, or group of a stream, a trigger watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger

__all__ = ["PlaceTrigger"]


class PlaceTrigger(BaseTrigger):
    """
    Declares the arguments that name what a trigger works on, exactly one of a queue and a group of a stream.

    :param queue_name: the name of a queue. ``queue`` is Airflow's own argument.
    :param stream: instead, the name of a stream, with ``group``.
    :param group: the name of a group of the stream.
    :param redis_conn_id: the connection.
    """

    def __init__(
        self,
        *,
        queue_name: Any = None,
        stream: str | None = None,
        group: Any = None,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.queue_name = _plain(queue_name)
        self.stream = stream
        self.group = _plain(group)
        self.redis_conn_id = redis_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, which are plain values."""
        names = {"queue_name": self.queue_name, "stream": self.stream, "group": self.group}
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                # Those of a queue are what older versions of this package wrote, so that a watcher stays the same one.
                **{name: value for name, value in names.items() if value is not None},
                **self.arguments(),
                "redis_conn_id": self.redis_conn_id,
            },
        )

    def arguments(self) -> dict[str, Any]:
        """Return the further arguments of the trigger, by name."""
        raise NotImplementedError


def _plain(names: object) -> object:
    return list(names) if isinstance(names, Sequence) and not isinstance(names, str) else names
