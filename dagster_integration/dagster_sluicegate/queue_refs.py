"""References of definitions to what they consume, by a resource and names, and to the asset that stands for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from dagster_sluicegate.depths import Located
from dagster_sluicegate.names import NO_NAMES, Names
from dagster_sluicegate.places import names_of
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate import Depth
from sluicegate.consumer import QueueConsumer
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place

__all__ = ["QUEUE_ID", "QueueAsset", "QueueLook", "QueueRef", "asset_key_of"]

QueueAsset = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str | Sequence[str]
QUEUE_ID = "sluicegate/queue_id"


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What one look at a queue, or at a group of a stream, found.

    Attributes:
        place: the queue or the group.
        queue_id: its name and a mark of its server, which separates those of one name on several servers.
        depth: what it holds.
        page: the metadata with the link to it on the web page; empty without one.
    """

    place: Place
    queue_id: str
    depth: Depth
    page: Mapping[str, dg.UrlMetadataValue] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return whose numbers they are, and the numbers, which Dagster's UI plots."""
        return {
            QUEUE_ID: self.queue_id,
            **(names_of(self.place) if self.place.stream else {}),
            "sluicegate/ready": self.depth.ready,
            "sluicegate/oldest_ready_age_seconds": self.depth.oldest_ready_age_seconds or 0.0,
            # Messages of expired leases and those that are due count as ready already.
            "sluicegate/in_flight": self.depth.in_flight - self.depth.expired,
            "sluicegate/dead": self.depth.dead,
            "sluicegate/delayed": self.depth.delayed - self.depth.due,
            **self.page,
        }


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue, or a group of a stream, as a definition knows it before there is a resource.

    Attributes:
        resource_key: of the `RedisQueueResource`.
        names: that the definition gives; those of the resource stand for what it leaves out.
    """

    resource_key: str = "queue"
    names: Names = NO_NAMES

    @classmethod
    def checked(
        cls,
        definition: str,
        resource_key: str,
        queue_name: str | None,
        stream_name: str | None = None,
        group: str | None = None,
    ) -> QueueRef:
        """Make the reference of a definition, which an error names."""
        try:
            return cls(resource_key, Names(queue_name, stream_name, group))
        except ConfigurationError as error:
            raise type(error)(f"{definition}: {error}") from None

    @property
    def described(self) -> str:
        """Return in Markdown which one it is, as far as the definition knows."""
        return self.names.described or f"the queue of the resource `{self.resource_key}`"

    @property
    def in_words(self) -> str:
        """Return the same as plain text, which is what Dagster's UI shows of a sensor's description."""
        return self.names.in_words or f"the queue of the resource {self.resource_key!r}"

    def locate(self, resource: RedisQueueResource) -> Located:
        """Return where it is.

        Raises:
            ConfigurationError: neither the definition nor the resource names one to consume from.
        """
        return Located(resource.server_url, resource.resolve_consumed(self.names), resource.start)

    def identify(self, resource: RedisQueueResource) -> str:
        """Return its name with a mark of its server."""
        return self.locate(resource).queue_id

    def look(self, resource: RedisQueueResource) -> QueueLook:
        """Read its depth."""
        where = self.locate(resource)
        return QueueLook(
            where.place, where.queue_id, resource.read_depth(where.place), resource.page_metadata(where.place)
        )

    @contextmanager
    def open(self, resource: RedisQueueResource) -> Iterator[QueueConsumer]:
        """Yield it for claims; it is closed at the end of the block."""
        names = self.names
        with resource.get_consumer(names.queue_name, stream_name=names.stream_name, group=names.group) as consumer:
            yield consumer


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
