"""What a sensor of your own needs to know of a queue and of the runs that were requested for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from dagster_sluicegate.names import Names
from dagster_sluicegate.places import label_of
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import queue_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.decision import GateRules, Look, WatchedQueue
from dagster_sluicegate.sensors.run_requests import tags_of_run
from dagster_sluicegate.sensors.runs import GateRuns, History, Unfinished
from sluicegate import Depth
from sluicegate.gates import Gate
from sluicegate.place import Place

__all__ = ["QueueSnapshot", "queue_snapshot"]


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue or group, and the runs that were requested for it, as one tick of a sensor sees them.

    See `queue_snapshot`.

    Attributes:
        place: the queue, or the group of a stream.
        queue_id: its name with a mark of its server.
        depth: the counts of its messages.
        unfinished: the runs that may still claim, each with `run_id`, `status` and `age_seconds`.
        attempt: the number of the next run of this generation, from 0.
    """

    place: Place
    queue_id: str
    depth: Depth
    unfinished: Sequence[Unfinished]
    attempt: int
    _history: History = field(repr=False)

    @property
    def queue(self) -> str:
        """Return the name of the queue; of a group the text that stands for it, such as `stream:orders:billing`."""
        return label_of(self.place)

    @property
    def generation(self) -> int:
        """Return how many messages of the queue were ever claimed; it moves when a run claims."""
        return self.depth.claimed_total

    @property
    def run_key(self) -> str:
        """Return `queue:generation:attempt`: every tick computes the same until a run claims, or ends without."""
        return f"{self.queue}:{self.generation}:{self.attempt}"

    @property
    def tags(self) -> Mapping[str, str]:
        """Return the tags by which later ticks find the run; give them to the `RunRequest`."""
        return tags_of_run(self.place, self.queue_id, str(self.generation), self.attempt, self.depth)

    def why_not(
        self,
        *,
        min_ready: int | None = None,
        max_age_seconds: float | None = None,
        max_in_flight: int = 1,
        messages_per_run: int | None = None,
        attempt_delay_seconds: float = 60,
        failure_delay_seconds: float = 60,
        stale_run_seconds: float = 3600,
    ) -> str:
        """Return why no run should be requested now, for a `SkipReason`; "" if one should.

        It decides as `build_queue_depth_sensor` does, whose options these are.

        Raises:
            ConfigurationError: an option that cannot work.
        """
        rules = GateRules(
            gate=Gate(min_ready, max_age_seconds),
            max_in_flight=max_in_flight,
            messages_per_run=messages_per_run,
            attempt_delay_seconds=attempt_delay_seconds,
            failure_delay_seconds=failure_delay_seconds,
            stale_run_seconds=stale_run_seconds,
        )
        queue = WatchedQueue(self.place, self.queue_id, rules, label=self.queue)
        look = Look.of(queue, self.depth, self.unfinished)
        return look.why_shut or look.decide(self._history).reason


def queue_snapshot(
    context: dg.SensorEvaluationContext,
    *,
    resource: RedisQueueResource | None = None,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
) -> QueueSnapshot:
    """Look at a queue and at the runs that were requested for it, in a sensor of your own.

    It only reads. Runs count if they carry the snapshot's `tags`, so give these to every `RunRequest`, with the
    snapshot's `run_key`; then the sensor requests one run per backlog, as `build_queue_depth_sensor` does.

    Args:
        context: of the sensor.
        resource: of the queue, if the sensor takes it as a parameter.
        resource_key: of the queue's resource, if the sensor names it in `required_resource_keys`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream.

    Raises:
        ConfigurationError: no queue resource is there, or no queue is named.
        RedisUnavailableError: Redis cannot be reached; names host and port.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_drain_asset, queue_snapshot


            def count(messages) -> int:
                return len(messages)


            drained = build_queue_drain_asset(spec="drained", process=count)


            @dg.sensor(target=drained)
            def my_gate(context: dg.SensorEvaluationContext, queue: RedisQueueResource):
                orders = queue_snapshot(context, resource=queue)
                if reason := orders.why_not(min_ready=1000):
                    return dg.SkipReason(reason)
                return dg.RunRequest(run_key=orders.run_key, tags=orders.tags)


            defs = dg.Definitions(
                assets=[drained],
                sensors=[my_gate],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    found = resource if resource is not None else queue_resource(context.resources, resource_key)
    where = QueueRef(resource_key, Names(queue_name, stream_name, group)).locate(found)
    queue_id = where.queue_id
    runs = GateRuns.of(context)
    # Runs first: one that was unfinished then and has ended since had claimed by the time of the depth.
    unfinished = tuple(runs.unfinished([queue_id])[queue_id])
    depth = found.read_depth(where.place)
    history = runs.histories({queue_id: str(depth.claimed_total)})[queue_id]
    return QueueSnapshot(where.place, queue_id, depth, unfinished, history.next_attempt, history)
