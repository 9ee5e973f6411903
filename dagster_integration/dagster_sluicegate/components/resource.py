"""The queue resource as a component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, create_model

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.scaffolders import ResourceScaffolder
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.urls import has_password
from sluicegate.errors import ConfigurationError

__all__ = ["RedisQueueResourceComponent"]

_EXAMPLES: dict[str, list[Any]] = {
    "queue_name": ["orders"],
    "stream_name": ["orders"],
    "group": ["billing"],
    "deduplication_key": ["order_id", "{tenant}:{order_id}"],
    "heartbeat_interval_seconds": [20],
    "json_default": ["iso"],
    "max_dead_length": [10_000],
    "max_lease_seconds": [3600],
    "max_payload_bytes": [1_000_000],
    "max_payload_depth": [20],
    "max_pending_length": [1_000_000],
}

if TYPE_CHECKING:

    class _QueueFields(dg.Model):
        queue_name: str | None
else:
    # The resource's own fields, so that an option is declared once.
    _QueueFields = create_model(
        "_QueueFields",
        __base__=dg.Model,
        **{
            name: (
                field.annotation,
                Field(
                    **({} if field.is_required() else {"default": field.default}),
                    description=field.description,
                    examples=_EXAMPLES.get(name, [field.default]),
                ),
            )
            for name, field in RedisQueueResource.model_fields.items()
            if name != "url"
        },
    )


@dg.scaffold_with(ResourceScaffolder)
class RedisQueueResourceComponent(QueueComponent, _QueueFields):
    """A queue on Redis as a resource, whose URL is in an environment variable.

    Other components and your assets use it under `resource_key`.

    .. code-block:: yaml

        type: dagster_sluicegate.components.RedisQueueResourceComponent
        attributes:
          url_env_var: REDIS_URL
          queue_name: orders
          deduplication_key: order_id
        requirements:
          env:
            - REDIS_URL
    """

    produces: ClassVar[tuple[str, ...]] = ("resource",)

    url_env_var: str | None = Field(
        default=None,
        description=(
            "Name of the environment variable with the URL. Dagster reads it when a run or a sensor begins, and its UI "
            "shows the name only. Give this or `url`."
        ),
        examples=["REDIS_URL"],
    )
    url: str | None = Field(
        default=None,
        repr=False,
        description=(
            "Where Redis is, as plain text that the UI shows: a URL without a password, or with the name of its "
            "variable (`?password_env=NAME`)."
        ),
        examples=["redis://localhost:6379/0", "redis://worker@redis.internal:6379/0?password_env=REDIS_PASSWORD"],
    )
    resource_key: str = Field(
        default="queue",
        description="Key of the resource, by which sensors and assets find it.",
        examples=["queue", "orders_queue"],
    )

    @property
    def resource(self) -> RedisQueueResource:
        """Return the resource, for components that build on this one."""
        options = {name: getattr(self, name) for name in RedisQueueResource.model_fields if name != "url"}
        return RedisQueueResource(url=self._url(), **options)

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the resource only."""
        resource = self.resource
        resource.get_resource_definition()  # checks the options here, so that the error names the component
        return dg.Definitions(resources={self.resource_key: resource})

    def _url(self) -> Any:
        if self.url is not None and self.url_env_var is not None:
            raise ConfigurationError("give url_env_var or url, not both")
        if self.url is None and self.url_env_var is None:
            raise ConfigurationError(
                "url_env_var is missing; name the environment variable that holds the URL, such as REDIS_URL"
            )
        if self.url is None:
            if not str(self.url_env_var).isidentifier():  # not shown: it may be a URL, with its password
                raise ConfigurationError("url_env_var must be the name of an environment variable, such as REDIS_URL")
            return dg.EnvVar(str(self.url_env_var))
        if has_password(self.url):
            raise ConfigurationError(
                "url carries a password as plain text, which the UI would show; give url_env_var, the name of the "
                "environment variable that holds the URL, or a URL such as redis://user@host:6379/0?password_env=NAME"
            )
        return self.url
