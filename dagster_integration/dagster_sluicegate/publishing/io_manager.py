"""An IO manager that publishes what a step returns."""

# Annotations are not postponed here: Dagster reads the one of the nested resource.
from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg
from pydantic import Field

from dagster_sluicegate.batches import batch_id_of
from dagster_sluicegate.compat import show_markdown
from dagster_sluicegate.identity import root_run_id, work_name
from dagster_sluicegate.names import Names
from dagster_sluicegate.publishing.step import RETRY_WINDOW_SECONDS, PublishOptions, publish
from dagster_sluicegate.resource_keys import check_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.tracing import traced_step
from dagster_sluicegate.urls import is_variable
from sluicegate.core.publishing import MAX_PER_CALL
from sluicegate.errors import ConfigurationError
from sluicegate.signatures import refuse_unknown_options

__all__ = ["QueuePublishIOManager"]


class QueuePublishIOManager(dg.ConfigurableIOManager):
    """Publishes each item of what an asset or op returns, and cannot load it again.

    An output is an iterable of payloads (dicts and lists, str or bytes), a pandas frame or an Arrow table, whose rows
    become dicts. `None`, a single dict, a text and whatever else is no iterable are refused without a retry. Dagster
    takes a returned generator for its own events, so wrap it: `dg.Output(generator)`.

    A retry of the step and a re-execution of its run publish only what is missing, for `retry_window_seconds`: each
    message has a key made of the root run, the asset or output, its partitions, its mapping key and the position of the
    message. If the resource has a `deduplication_key`, that is used instead. What fails, and the metadata, are those of
    `build_queue_publish_asset`.

    An input cannot be loaded: that would be a claim without an ack. Let a drain asset consume the queue.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import QueuePublishIOManager, RedisQueueResource


            @dg.asset(io_manager_key="to_queue")
            def orders() -> list[dict]:
                return [{"order_id": number} for number in range(1000)]


            queue = RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")
            defs = dg.Definitions(
                assets=[orders],
                resources={"queue": queue, "to_queue": QueuePublishIOManager(queue=queue)},
            )
    """

    queue: dg.ResourceDependency[RedisQueueResource]
    queue_name: str | None = Field(
        default=None, description="Publish to this queue of the server instead of the resource's own."
    )
    stream_name: str | None = Field(
        default=None, description="Publish to this stream of the server, instead of a queue."
    )
    as_batch: bool = Field(
        default=False,
        description=(
            "Publish each output as one batch, whose completion build_batch_sensor awaits; its id is the output's "
            "metadata sluicegate/batch_id."
        ),
    )
    batch_size: int = Field(default=MAX_PER_CALL, description="Most messages per call, up to 1,000.")
    retry_window_seconds: float = Field(
        default=RETRY_WINDOW_SECONDS,
        description="How long a retry finds what earlier tries published, by its position in the output.",
    )

    if not TYPE_CHECKING:  # a checker takes the signature from the fields

        def __init__(self, **values: Any) -> None:
            refuse_unknown_options(type(self).__name__, values, type(self).model_fields, {})
            super().__init__(**values)

    def get_resource_definition(self) -> Any:
        """Refuse options that cannot work when the definitions load.

        Raises:
            ConfigurationError: names the option.
        """
        if not any(is_variable(value) for value in (self.batch_size, self.retry_window_seconds)):
            self._options()
        _ = Names(self.queue_name, self.stream_name)
        show_markdown(self)
        return super().get_resource_definition()

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Publish an output, and add the counts to its metadata."""
        path = context.asset_key.path if context.has_asset_key else [context.step_key, context.name]
        output = f"the output of {'/'.join(path)}"
        work = work_name(root_run_id(context), path, _partitions(context), context.mapping_key or "")
        with traced_step(context):
            metadata = publish(
                check_resource(self.queue, "queue"),
                obj,
                what=output,
                work=work,
                log=context.log,
                options=self._options(),
                names=Names(self.queue_name, self.stream_name),
                batch_id=batch_id_of(work) if self.as_batch else None,
            )
        context.add_output_metadata(metadata)

    def load_input(self, context: dg.InputContext) -> NoReturn:
        """Refuse to load messages, which would be lost or delivered twice.

        Raises:
            ConfigurationError: names the asset and what to do.
        """
        upstream = context.upstream_output
        made = context.asset_key.to_user_string() if context.has_asset_key else upstream.name if upstream else "?"
        raise ConfigurationError(
            f"the messages of {made} are in a queue, and an IO manager cannot claim and ack them; consume the queue "
            "with a drain asset, build_queue_drain_asset(spec=..., process=...), and order it behind the publish by "
            "AssetSpec(deps=[...]) instead of an input"
        )

    def _options(self) -> PublishOptions:
        return PublishOptions(batch_size=self.batch_size, retry_window_seconds=self.retry_window_seconds)


def _partitions(context: dg.OutputContext) -> list[str]:
    if context.has_asset_partitions:
        return list(context.asset_partition_keys)
    return [context.partition_key] if context.has_partition_key else []
