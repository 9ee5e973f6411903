"""Report to Airflow's lineage which queues a task reads and writes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import parse_qs, urlsplit

from airflow_provider_sluicegate import compat

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import QueueEvent
    from sluicegate.place import Place

__all__ = ["ReportsLineage", "dataset_name", "namespace_of", "reporting"]

Direction = Literal["input", "output"]
OnEvent = Callable[["QueueEvent"], Any]

_log = logging.getLogger(__name__)

# An empty queue and a refused duplicate are a read and a write too.
_DIRECTIONS: dict[str, Direction] = {
    "publish": "output",
    "claim": "input",
    "take_over": "input",
    "attach": "input",
}
_OUTCOMES = ("success", "duplicate", "empty")
_PORTS = {"redis": 6379, "redis+cluster": 6379, "redis+sentinel": 26379}


def namespace_of(url: str) -> str:
    """
    Return the server of a URL as a namespace of OpenLineage, such as ``redis://cache:6379``, without credentials.

    TLS makes no difference to what is stored where, so it is left out. A database other than 0 follows the port.

    :param url: as :class:`sluicegate.RedisMessageQueue` takes it.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.replace("rediss", "redis")
    place = parts.path.rstrip("/")
    if scheme in _PORTS:
        hosts = parts.netloc.rpartition("@")[2] or "localhost"
        place = ",".join(_with_port(host, _PORTS[scheme]) for host in hosts.split(",")) + place.removesuffix("/0")
    database = parse_qs(parts.query).get("db", ["0"])[-1]
    return f"{scheme}://{place}{'' if database == '0' else f'/{database}'}"


def dataset_name(place: Place) -> str:
    """
    Return the name of a queue or stream in OpenLineage: that of the queue, or ``stream:`` and that of the stream.

    The groups of a stream read the same dataset.
    """
    return f"stream:{place.name}" if place.stream else place.name


def reporting(hook: RedisQueueHook, place: Place, on_event: OnEvent | None) -> OnEvent | None:
    """
    Return a queue's ``on_event`` that also reports the queue to Airflow's hook lineage.

    The queue is reported once as an output, at the first publish, and once as an input, at the first claim. Without a
    reader of hook lineage, such as the OpenLineage provider, and in a triggerer, ``on_event`` is returned as it is.

    :param hook: the hook that makes the queue.
    :param place: the queue, stream or group.
    :param on_event: the callback of the queue's options.
    """
    if (on_event is not None and not callable(on_event)) or not compat.collects_hook_lineage():
        return on_event
    report = _Reporter(hook, place)
    if on_event is None:
        return report
    if inspect.iscoroutinefunction(on_event):

        async def both_async(event: QueueEvent) -> None:
            report(event)
            await on_event(event)

        return both_async

    def both(event: QueueEvent) -> Any:
        report(event)
        return on_event(event)

    return both


class _Reporter:
    """Reports a queue at its first event of each direction."""

    def __init__(self, hook: RedisQueueHook, place: Place) -> None:
        self._hook = hook
        self._place = place
        self._reported: set[Direction] = set()

    def __call__(self, event: QueueEvent) -> None:
        direction = _DIRECTIONS.get(event.operation)
        if direction is None or direction in self._reported or event.outcome not in _OUTCOMES:
            return
        self._reported.add(direction)
        try:
            collector = compat.hook_lineage_collector()
            add = collector.add_input_asset if direction == "input" else collector.add_output_asset
            named = {"stream" if self._place.stream else "queue_name": self._place.name}
            add(
                context=self._hook,
                scheme="sluicegate",
                asset_kwargs={**named, "redis_conn_id": self._hook.redis_conn_id},
            )
        except Exception as error:  # noqa: BLE001  (lineage changes no outcome)
            _log.warning("%s could not be reported to Airflow's lineage: %s", self._place, error)


class ReportsLineage:
    """
    Reports an operator's queues to OpenLineage when its task ends, and what its functions report by their hooks.

    :cvar lineage_direction: whether the operator reads the queue or writes to it.
    :ivar lineage_count: the number of messages, once it is known.
    """

    lineage_direction: ClassVar[Direction]
    lineage_count: int | None = None
    redis_conn_id: str
    place: Any

    def lineage_places(self) -> Sequence[Place]:
        """Return the queues or streams that the operator reads or writes."""
        return (self.place,)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return each queue as a dataset, with the number of messages; the OpenLineage provider calls this."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook

        namespace = RedisQueueHook(self.redis_conn_id).get_openlineage_namespace()
        names = list(dict.fromkeys(dataset_name(place) for place in self.lineage_places()))
        queues = [_dataset(self.lineage_direction, namespace, name, self.lineage_count) for name in names]
        inputs, outputs = (queues, []) if self.lineage_direction == "input" else ([], queues)
        lineage: OperatorLineage[Any, Any] = OperatorLineage(inputs=inputs, outputs=outputs)
        others = _of_hooks(task_instance)
        if others is None:
            return lineage
        # The queues are among them as well, without the number.
        known = {(namespace, name) for name in names}
        for datasets in (others.inputs, others.outputs):
            datasets[:] = [dataset for dataset in datasets if (dataset.namespace, dataset.name) not in known]
        return lineage.merge(others)


def _dataset(direction: Direction, namespace: str, name: str, count: int | None) -> Dataset:
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset, output_statistics_output_dataset

    if direction == "input":
        read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=count)
        return InputDataset(namespace, name, inputFacets={} if count is None else {"inputStatistics": read})
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=count)
    return OutputDataset(namespace, name, outputFacets={} if count is None else {"outputStatistics": written})


def _of_hooks(task_instance: Any) -> OperatorLineage[Any, Any] | None:
    """Return what hooks reported in this task: OpenLineage asks for it only where an operator reports nothing."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    get = ExtractorManager().get_hook_lineage  # type: ignore[no-untyped-call]
    arguments = (task_instance, task_instance.state) if inspect.signature(get).parameters else ()
    return get(*arguments)


def _with_port(host: str, port: int) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{port}"
