"""
Queues and streams as Airflow assets.

A queue is ``sluicegate://<connection id>/<queue>``, a stream ``sluicegate://<connection id>/?stream=<stream>``, and a
group of it ``sluicegate://<connection id>/?group=<group>&stream=<stream>``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from airflow.sdk import Asset

from airflow_provider_sluicegate.lineage import dataset_name
from airflow_provider_sluicegate.places import named_place

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from openlineage.client.event_v2 import Dataset

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate.place import Place

__all__ = ["convert_asset_to_openlineage", "create_asset", "sanitize_uri"]

_SCHEME = "sluicegate"
_HOST_AND_PORT = re.compile(r":\d+$")


def create_asset(
    *,
    queue_name: str | None = None,
    stream: str | None = None,
    group: str | None = None,
    redis_conn_id: str = "sluicegate_default",
    extra: dict[str, Any] | None = None,
) -> Asset:
    """
    Return the asset that stands for a queue or a stream, to schedule DAGs by it, or as the inlet or outlet of a task.

    Its URI is ``sluicegate://<connection id>/<queue>``, or ``sluicegate://<connection id>/?stream=<stream>``, with
    ``group=<group>&`` before ``stream`` for one group. It names the connection instead of a server, so that it holds no
    secret, and reading a DAG file looks nothing up. Characters that have a meaning in a URI are percent-encoded.

    :param queue_name: the name of the queue.
    :param stream: instead, the name of a stream.
    :param group: the name of a group of the stream, for a DAG that is about this group only.
    :param redis_conn_id: the connection.
    :param extra: the asset's extra.
    :raises ValueError: the name of the queue, stream, group or connection is blank, or not one of queue and stream.
    """
    if not redis_conn_id.strip():
        raise ValueError("redis_conn_id is blank; give the id of an Airflow connection")
    place = named_place(queue_name, stream, group)
    base = f"{_SCHEME}://{quote(redis_conn_id, safe='')}"
    if not place.stream:
        return Asset(uri=f"{base}/{quote(place.name, safe='')}", extra=extra)
    names = {"group": place.group, "stream": place.name}  # in the order to which Airflow sorts a query
    return Asset(
        uri=f"{base}/?{urlencode({key: name for key, name in names.items() if name is not None})}", extra=extra
    )


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """
    Return the URI of a queue or stream as it is; Airflow calls this for every asset of the scheme.

    :param uri: the URI.
    :raises ValueError: it names a user or a host, or it is not one connection and one queue or stream.
    """
    _read(uri)
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """
    Return an asset as a dataset of OpenLineage, whose namespace is the server, such as ``redis://cache:6379``.

    The name of a queue is the dataset's name; the dataset of a stream and all its groups is ``stream:`` and its name.

    :param asset: of the scheme ``sluicegate``.
    :param lineage_context: the hook that reported the asset; without one the connection is looked up.
    """
    from openlineage.client.event_v2 import Dataset

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

    conn_id, place = _read(urlsplit(asset.uri))
    hook: RedisQueueHook = lineage_context if isinstance(lineage_context, RedisQueueHook) else RedisQueueHook(conn_id)
    return Dataset(namespace=hook.get_openlineage_namespace(), name=dataset_name(place))


def _read(uri: SplitResult) -> tuple[str, Place]:
    """Return the connection's id, and the queue, stream or group."""
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
    names = parse_qsl(uri.query, keep_blank_values=True)
    known = [*(["queue_name"] if queue_name else []), *(name for name, _ in names)]
    is_queue, is_stream = known == ["queue_name"], sorted(known) in (["stream"], ["group", "stream"])
    if "/" in uri.path[1:] or not conn_id.strip() or not (is_queue or is_stream):
        raise _not_an_asset(uri)
    try:
        return conn_id, named_place(queue_name) if is_queue else named_place(
            None, *(dict(names).get(name) for name in ("stream", "group"))
        )
    except ValueError:
        raise _not_an_asset(uri) from None


def _not_an_asset(uri: SplitResult) -> ValueError:
    return ValueError(
        f"{uri.geturl()!r} is not the URI of a queue, which is sluicegate://<connection id>/<queue> with "
        "percent-encoded parts, nor that of a stream, which is sluicegate://<connection id>/?stream=<stream>, or of a "
        "group, which is sluicegate://<connection id>/?group=<group>&stream=<stream>; create_asset(queue_name=…) makes "
        "it, or create_asset(stream=…, group=…)"
    )
