"""Let Airflow's common ``MessageQueueTrigger`` watch a Sluicegate queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    The further arguments are those of :class:`RedisQueueEventTrigger`: ``queue_name``, ``min_ready`` and so on.
    """

    scheme = "redis+sluicegate"

    def trigger_class(self) -> type[RedisQueueEventTrigger]:
        """Return the class of the trigger."""
        from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger

        return RedisQueueEventTrigger
