"""Let Airflow's common ``MessageQueueTrigger`` watch a Sluicegate queue, or a group of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider_sluicegate.compat import AirflowOptionalProviderFeatureException

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "MessageQueueTrigger needs the package apache-airflow-providers-common-messaging"
    ) from error

if TYPE_CHECKING:
    from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger

__all__ = ["RedisQueueMessageQueueProvider"]


class RedisQueueMessageQueueProvider(BaseMessageQueueProvider):
    """
    Makes :class:`RedisQueueEventTrigger` of ``MessageQueueTrigger(scheme="redis+sluicegate", …)``.

    The further arguments are those of :class:`RedisQueueEventTrigger`: ``queue_name``, or ``stream`` and ``group``,
    ``min_ready`` and so on.

    ``MessageQueueTrigger(queue="redis+sluicegate://sluicegate_default?stream=orders&group=billing", …)`` does the same
    by a URL, which names an Airflow connection in place of a server, and a queue as ``?queue=orders``.
    """

    scheme = "redis+sluicegate"

    def queue_matches(self, queue: str) -> bool:
        """Return whether a URL is of this scheme."""
        return queue.startswith(f"{self.scheme}://")

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """
        Return the arguments that a URL stands for.

        :param queue: the URL.
        :param kwargs: the other arguments of the trigger.
        :raises ConfigurationError: it names a server, or not one queue or group.
        """
        from sluicegate.errors import ConfigurationError
        from sluicegate.place import Place

        parts = urlsplit(queue)
        if "@" in parts.netloc or ":" in parts.netloc or parts.path.strip("/") or not parts.netloc:
            raise ConfigurationError(
                "the URL names a server, a user or a path; write the id of an Airflow connection in their place, such "
                "as redis+sluicegate://sluicegate_default?stream=orders&group=billing"
            )
        url, place = Place.parse_url(queue)
        if urlsplit(url).query:
            raise ConfigurationError("the URL has more than queue, stream and group; give the rest as arguments")
        names = {"stream": place.name, "group": place.group} if place.stream else {"queue_name": place.name}
        return {**names, "redis_conn_id": unquote(parts.netloc)}

    def trigger_class(self) -> type[RedisQueueEventTrigger]:
        """Return the class of the trigger."""
        from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger

        return RedisQueueEventTrigger
