"""References of definitions to a queue, by its resource and its name, and to the asset that stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from dagster_sluicegate.depths import identify
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import Depth
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError

__all__ = ["QUEUE_ID", "QueueAsset", "QueueLook", "QueueRef", "asset_key_of"]

QueueAsset = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str | Sequence[str]
QUEUE_ID = "sluicegate/queue_id"


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What one look at a queue found.

    Attributes:
        name: of the queue.
        queue_id: its name and a mark of its server, which separates queues of one name on several servers.
        depth: what it holds.
    """

    name: str
    queue_id: str
    depth: Depth

    @property
    def metadata(self) -> dict[str, float | str]:
        """Return whose numbers they are, and the numbers, which Dagster's UI plots."""
        return {
            QUEUE_ID: self.queue_id,
            "sluicegate/ready": self.depth.ready,
            "sluicegate/oldest_ready_age_seconds": self.depth.oldest_ready_age_seconds or 0.0,
            # Messages of expired leases and those that are due count as ready already.
            "sluicegate/in_flight": self.depth.in_flight - self.depth.expired,
            "sluicegate/dead": self.depth.dead,
            "sluicegate/delayed": self.depth.delayed - self.depth.due,
        }


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue as a definition knows it, before there is a resource.

    Attributes:
        resource_key: of the `RedisQueueResource`.
        queue_name: of the queue; None for the resource's own.
    """

    resource_key: str = "queue"
    queue_name: str | None = None

    @classmethod
    def checked(cls, definition: str, resource_key: str, queue_name: str | None) -> QueueRef:
        """Make the reference of a definition, which an error names."""
        try:
            if queue_name is not None:
                QueueKeys(queue_name)  # it checks the name
        except ConfigurationError as error:
            raise type(error)(f"{definition}: queue_name: {error}") from None
        return cls(resource_key, queue_name)

    @property
    def described(self) -> str:
        """Return in Markdown which queue it is, as far as the definition knows."""
        return (
            f"the queue `{self.queue_name}`" if self.queue_name else f"the queue of the resource `{self.resource_key}`"
        )

    @property
    def in_words(self) -> str:
        """Return the same as plain text, which is what Dagster's UI shows of a sensor's description."""
        return (
            f"the queue {self.queue_name!r}" if self.queue_name else f"the queue of the resource {self.resource_key!r}"
        )

    def identify(self, resource: RedisQueueResource) -> str:
        """Return the queue's name with a mark of its server."""
        return identify(resource.url, resource.resolve_name(self.queue_name))

    def look(self, resource: RedisQueueResource) -> QueueLook:
        """Read the queue's depth."""
        name = resource.resolve_name(self.queue_name)
        return QueueLook(name, self.identify(resource), resource.get_depth(self.queue_name))


def asset_key_of(asset: QueueAsset, definition: str) -> dg.AssetKey:
    """Return the key of an asset.

    Raises:
        ConfigurationError: it has several keys, or is no asset; names the definition.
    """
    if isinstance(asset, dg.AssetsDefinition):
        if len(asset.keys) != 1:
            names = sorted(key.to_user_string() for key in asset.keys)
            raise ConfigurationError(f"{definition}: give one key, because the asset has several: {names}")
        return asset.key
    if isinstance(asset, dg.AssetSpec):
        return asset.key
    parts = [asset] if isinstance(asset, str) else asset
    if isinstance(parts, dg.AssetKey) or (
        isinstance(parts, Sequence) and parts and all(isinstance(part, str) and part for part in parts)
    ):
        return dg.AssetSpec(asset).key
    raise ConfigurationError(f"{definition}: give an asset or the key of one, not {asset!r}")
