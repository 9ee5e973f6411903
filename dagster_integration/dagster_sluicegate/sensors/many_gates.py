"""One sensor for the gates of many queues: one write per server, and a dead server stops no other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from dagster_sluicegate.depths import Located, read_places
from dagster_sluicegate.names import Names
from dagster_sluicegate.places import label_of
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resources
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.cursor import GateCursor
from dagster_sluicegate.sensors.decision import Decision, GateRules, WatchedQueue, decide
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS, CountRunsOf, RunConfigFn
from dagster_sluicegate.sensors.run_requests import RunTemplate
from dagster_sluicegate.sensors.runs import GateRuns
from dagster_sluicegate.sensors.targets import Target, Targets
from sluicegate import checks
from sluicegate.errors import ConfigurationError, RedisMessageQueueError
from sluicegate.gates import Gate

__all__ = ["QueueGate", "build_queue_gates_sensor"]

_MOST_EXPLAINED = 5
_MOST_DESCRIBED = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueGate:
    """The gate of one queue in a sensor of many; see `build_queue_gates_sensor`.

    Attributes:
        target: what to run: one job, or assets or a selection of them; without partitions, unless `partition_key`
            names one.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream; default: the resource's own.
        partition_key: of the partition that a run drains; see `QueuePartitions.gates`.
        min_ready: open when so many messages are ready.
        max_age_seconds: open when the oldest ready message has been ready for so long. Give this or `min_ready`, or
            both: either opens.
        max_in_flight: how many runs may be unfinished at a time; default 1.
        messages_per_run: with `max_in_flight` above 1, how many ready messages warrant a run each; default `min_ready`.
        run_config_fn: called with the context and the `Depth` to make the run's config. No payloads, no secrets.
    """

    target: Target
    resource_key: str = "queue"
    queue_name: str | None = None
    stream_name: str | None = None
    group: str | None = None
    partition_key: str | None = None
    min_ready: int | None = None
    max_age_seconds: float | None = None
    max_in_flight: int = 1
    messages_per_run: int | None = None
    run_config_fn: RunConfigFn | None = None

    @property
    def described(self) -> str:
        """Return which queue or group it is, as far as the definition knows."""
        return self.ref.in_words

    @property
    def ref(self) -> QueueRef:
        """Return the reference to the queue or group.

        Raises:
            ConfigurationError: its names contradict each other.
        """
        return QueueRef(self.resource_key, Names(self.queue_name, self.stream_name, self.group))


def build_queue_gates_sensor(
    *,
    name: str,
    queues: Sequence[QueueGate],
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    read_seconds: float = 20,
    attempt_delay_seconds: float = 60,
    failure_delay_seconds: float = 60,
    stale_run_seconds: float = 3600,
    max_runtime_seconds: int | None = 86_400,
    count_runs_of: CountRunsOf = "queue",
    run_tags: Mapping[str, str] | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build one sensor for the gates of many queues, each of which decides as `build_queue_depth_sensor` does.

    Dagster's daemon evaluates sensors one after the other unless it has threads for them, so one sensor for a hundred
    queues is evaluated sooner than a hundred sensors. The depths of a server come in one write, several servers are
    read at a time, and the run storage is asked the same few questions as for one queue.

    A server that cannot be read does not stop the other queues: their runs are requested, and the failure stands in
    the tick's log and in the cursor. The tick fails when no queue could be read. Servers that `read_seconds` did not
    suffice for are read first by the next tick.

    The run key is `queue:generation:attempt`; where two servers have a queue of the same name, `queue@resource_key`
    stands for the queue.

    Args:
        name: of the sensor.
        queues: the gates. Their targets are all jobs or all assets, because Dagster allows no mixture in a sensor.
        minimum_interval_seconds: between two looks; default 30. Dagster's daemon looks at most every 5 s.
        read_seconds: time for reading depths in one tick; default 20. Dagster ends a tick after 60 s.
        attempt_delay_seconds: pause after a run that ended without claiming, doubled with each attempt, an hour at
            most; default 60.
        failure_delay_seconds: pause after a run that failed, doubled with each further failure in a row, an hour at
            most; default 60.
        stale_run_seconds: how old an unfinished run may be before it is no longer counted, provided that no lease of
            its queue is alive; default an hour.
        max_runtime_seconds: the runs' tag `dagster/max_runtime`; default a day, None for no tag.
        count_runs_of: whose runs count as in flight: of every sensor of a `queue` in this code location (the default),
            or of this `sensor` only.
        run_tags: further tags of the runs.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text.
        tags: of the sensor itself, for the UI.

    Raises:
        ConfigurationError: an option or a gate that cannot work, or two gates for one queue.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import (
                QueueGate,
                RedisQueueResource,
                build_queue_drain_asset,
                build_queue_gates_sensor,
            )


            def count(messages) -> int:
                return len(messages)


            orders = build_queue_drain_asset(spec="orders", process=count, resource_key="orders_queue")
            returns = build_queue_drain_asset(spec="returns", process=count, resource_key="returns_queue")

            defs = dg.Definitions(
                assets=[orders, returns],
                sensors=[
                    build_queue_gates_sensor(
                        name="shop_gates",
                        queues=[
                            QueueGate(target=orders, resource_key="orders_queue", min_ready=1000, max_age_seconds=300),
                            QueueGate(target=returns, resource_key="returns_queue", min_ready=10),
                        ],
                    )
                ],
                resources={
                    "orders_queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders"),
                    "returns_queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="returns"),
                },
            )
    """
    try:
        template = RunTemplate(sensor=name, max_runtime_seconds=max_runtime_seconds, run_tags=dict(run_tags or {}))
        checks.one_of("count_runs_of", count_runs_of, ("queue", "sensor"))
        checks.positive("read_seconds", read_seconds)
        gates = [_rules(gate, attempt_delay_seconds, failure_delay_seconds, stale_run_seconds) for gate in queues]
        if not gates:
            raise ConfigurationError("queues is empty; give at least one QueueGate")
        sensor = _GatesSensor(
            name=name,
            gates=list(queues),
            rules=gates,
            targets=Targets.of([gate.target for gate in queues]),
            template=template,
            read_seconds=read_seconds,
            counts_own_runs_only=count_runs_of == "sensor",
        )
        keys = sorted({gate.resource_key for gate in queues})
        look = takes_resources(keys, sensor.look, dg.SensorEvaluationContext)
    except ConfigurationError as error:
        raise ConfigurationError(f"sensor {name!r}: {error}") from None
    declare = dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or _describe(queues, gates),
        default_status=default_status,
        tags=tags,
        **sensor.targets.of_sensor,
    )
    return declare(look)


@dataclass(frozen=True, kw_only=True, slots=True)
class _GatesSensor:
    """What one tick needs."""

    name: str
    gates: Sequence[QueueGate]
    rules: Sequence[GateRules]
    targets: Targets
    template: RunTemplate
    read_seconds: float
    counts_own_runs_only: bool

    def look(self, context: dg.SensorEvaluationContext, resources: Mapping[str, RedisQueueResource]) -> dg.SensorResult:
        """Evaluate one tick."""
        queues, places = self._watch(resources)
        unread = set(GateCursor.of(context).unread)
        first = {queue.queue_id for queue in queues if queue.label in unread}
        runs = GateRuns.of(context, self.name if self.counts_own_runs_only else None)
        decided = decide(runs, queues, lambda: read_places(places, first=first, seconds=self.read_seconds))
        tick = _Tick()
        for number, queue in enumerate(queues):
            found = decided.get(queue.queue_id)
            if found is None:
                tick.unread.append(queue.label)
            elif isinstance(found, Exception):
                tick.failed[_in_words(found)].append(queue.label)
            else:
                self._decide(context, tick, number, found, resources)
        for problem in tick.problems:
            context.log.error(problem)
        if not tick.decisions:
            raise RedisMessageQueueError(f"sensor {self.name!r} could read no queue; {'; '.join(tick.problems)}")
        return tick.result()

    def _watch(self, resources: Mapping[str, RedisQueueResource]) -> tuple[list[WatchedQueue], dict[str, Located]]:
        """Return the queues of the gates, in their order, and where they are."""
        found = [gate.ref.locate(resources[gate.resource_key]) for gate in self.gates]
        servers = Counter(where.place for where in found)
        queues: list[WatchedQueue] = []
        places: dict[str, Located] = {}
        for gate, rules, where in zip(self.gates, self.rules, found, strict=True):
            queue_id = where.queue_id
            if queue_id in places:
                raise ConfigurationError(f"sensor {self.name!r} has two gates for the {where.place}; remove one")
            label = label_of(where.place) + ("" if servers[where.place] == 1 else f"@{gate.resource_key}")
            queues.append(WatchedQueue(where.place, queue_id, rules, label))
            places[queue_id] = where
        return queues, places

    def _decide(
        self,
        context: dg.SensorEvaluationContext,
        tick: _Tick,
        number: int,
        decision: Decision,
        resources: Mapping[str, RedisQueueResource],
    ) -> None:
        """Add a decision and its requests; a `run_config_fn` that raises is a failure of its own gate only."""
        gate = self.gates[number]
        try:
            requests = self.template.requests(
                decision,
                tags=resources[gate.resource_key].page_tags(decision.queue.place),
                run_config=gate.run_config_fn(context, decision.depth)
                if gate.run_config_fn and decision.attempts
                else None,
                partition_key=gate.partition_key,
                **(self.targets.of_request(number, context) if decision.attempts else {}),
            )
        except Exception as error:
            if isinstance(error, ConfigurationError) or len(self.gates) == 1:
                raise
            context.log.exception(f"Queue {decision.queue.label!r}: its runs cannot be requested.")
            tick.failed[_in_words(error)].append(decision.queue.label)
        else:
            tick.decisions.append(decision)
            tick.requests += requests
            for warning in decision.warnings:
                context.log.warning(warning)


@dataclass(slots=True)
class _Tick:
    """What one tick found: per queue a decision, a failure, or no time."""

    decisions: list[Decision] = field(default_factory=list)
    requests: list[dg.RunRequest] = field(default_factory=list)
    failed: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unread: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Return in words what was not decided, one line per cause."""
        lines = [f"{_listed(labels)}: {error}" for error, labels in self.failed.items()]
        if self.unread:
            lines.append(f"{_listed(self.unread)}: not read in time, so the next tick reads them first")
        return lines

    def result(self) -> dg.SensorResult:
        """Return the requests, or why there are none, and the cursor."""
        busy = {decision.queue.label: decision.summary for decision in self.decisions if not decision.is_idle}
        cursor = GateCursor(
            queues=busy, idle=len(self.decisions) - len(busy), failed=dict(self.failed), unread=self.unread
        )
        return dg.SensorResult(
            run_requests=self.requests,
            skip_reason=None if self.requests else dg.SkipReason(self._why_skipped),
            cursor=cursor.to_text(),
        )

    @property
    def _why_skipped(self) -> str:
        """Return why no gate is open: the words of the deepest queues, and all that was not decided."""
        deepest = sorted(self.decisions, key=lambda decision: -decision.depth.ready)
        told = [decision.reason for decision in deepest[:_MOST_EXPLAINED]]
        if len(deepest) > _MOST_EXPLAINED:
            told.append(f"{len(deepest) - _MOST_EXPLAINED} other queues have no more messages ready.")
        return " ".join([*told, *(f"Not decided: {problem}." for problem in self.problems)])


def _rules(
    gate: QueueGate, attempt_delay_seconds: float, failure_delay_seconds: float, stale_run_seconds: float
) -> GateRules:
    try:
        ref = gate.ref
    except ConfigurationError as error:
        raise ConfigurationError(f"a gate: {error}") from None
    try:
        return GateRules(
            gate=Gate(gate.min_ready, gate.max_age_seconds),
            max_in_flight=gate.max_in_flight,
            messages_per_run=gate.messages_per_run,
            attempt_delay_seconds=attempt_delay_seconds,
            failure_delay_seconds=failure_delay_seconds,
            stale_run_seconds=stale_run_seconds,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"the gate of {ref.in_words}: {error}") from None


def _describe(gates: Sequence[QueueGate], rules: Sequence[GateRules]) -> str:
    """Return the gates as plain text, which is what Dagster's UI shows of a sensor's description."""
    shown = [
        f"{gate.described} when {rule.gate.condition}"
        for gate, rule in zip(gates[:_MOST_DESCRIBED], rules, strict=False)
    ]
    if len(gates) > _MOST_DESCRIBED:
        shown.append(f"and for {len(gates) - _MOST_DESCRIBED} more")
    return f"Requests a run for {'; '.join(shown)}. Only reads."


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:_MOST_EXPLAINED])
    return shown if len(labels) <= _MOST_EXPLAINED else f"{shown} and {len(labels) - _MOST_EXPLAINED} more"
