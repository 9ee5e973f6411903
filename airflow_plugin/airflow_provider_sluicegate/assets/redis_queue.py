"""Queues as Airflow assets: ``sluicegate://<connection id>/<queue>``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from airflow.sdk import Asset

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from openlineage.client.event_v2 import Dataset

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

__all__ = ["convert_asset_to_openlineage", "create_asset", "sanitize_uri"]

_SCHEME = "sluicegate"
_HOST_AND_PORT = re.compile(r":\d+$")


def create_asset(
    *, queue_name: str, redis_conn_id: str = "sluicegate_default", extra: dict[str, Any] | None = None
) -> Asset:
    """
    Return the asset that stands for a queue, to schedule DAGs by it, or as the inlet or outlet of a task.

    Its URI is ``sluicegate://<connection id>/<queue>``. It names the connection instead of a server, so that it holds
    no secret, and reading a DAG file looks nothing up. Characters that have a meaning in a URI are percent-encoded.

    :param queue_name: the name of the queue.
    :param redis_conn_id: the connection.
    :param extra: the asset's extra.
    :raises ValueError: the name of the queue or of the connection is blank.
    """
    uri = f"{_SCHEME}://{quote(redis_conn_id, safe='')}/{quote(queue_name, safe='')}"
    return Asset(uri=uri, extra=extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """
    Return a queue's URI as it is; Airflow calls this for every asset of the scheme.

    :param uri: the URI.
    :raises ValueError: it names a user, a host or a query, or it is not one connection and one queue.
    """
    _read(uri)
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """
    Return a queue's asset as a dataset of OpenLineage, whose namespace is the server, such as ``redis://cache:6379``.

    :param asset: of the scheme ``sluicegate``.
    :param lineage_context: the hook that reported the asset; without one the connection is looked up.
    """
    from openlineage.client.event_v2 import Dataset

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

    conn_id, queue_name = _read(urlsplit(asset.uri))
    hook: RedisQueueHook = lineage_context if isinstance(lineage_context, RedisQueueHook) else RedisQueueHook(conn_id)
    return Dataset(namespace=hook.get_openlineage_namespace(), name=queue_name)


def _read(uri: SplitResult) -> tuple[str, str]:
    """Return the connection's id and the queue's name."""
    if "@" in uri.netloc:
        raise ValueError(
            "the URI of a queue names a user; remove that: the URI names an Airflow connection, which has the user"
        )
    if _HOST_AND_PORT.search(uri.netloc):
        raise ValueError(
            f"the URI of a queue names the server {uri.netloc!r}; write the id of its Airflow connection instead, such "
            "as sluicegate://sluicegate_default/orders"
        )
    conn_id, _, queue_name = (unquote(part) for part in (uri.netloc + uri.path).partition("/"))
    if uri.query or "/" in uri.path[1:] or not conn_id.strip() or not queue_name.strip():
        raise ValueError(
            f"{uri.geturl()!r} is not the URI of a queue, which is sluicegate://<connection id>/<queue> with "
            "percent-encoded parts; create_asset(queue_name=…) makes it"
        )
    return conn_id, queue_name
