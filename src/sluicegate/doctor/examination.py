"""An examination: it reads what there is to know, and applies every rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sluicegate import checks
from sluicegate.clock import elapsed_clock
from sluicegate.core.transitions.examine import Examination, examine_operation
from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.depths import keys_of, run_together
from sluicegate.doctor.client_rules import check_client
from sluicegate.doctor.cluster_rules import check_clocks_together, check_cluster
from sluicegate.doctor.finding import Finding, could_not_look, error, note
from sluicegate.doctor.forecast import Rates, check_forecast
from sluicegate.doctor.keyspace import Keyspace, check_orphans, sample_keys
from sluicegate.doctor.place_rules import check_damage, check_state
from sluicegate.doctor.rights import check_rights
from sluicegate.doctor.server_facts import ServerFacts, read_servers
from sluicegate.doctor.server_rules import (
    check_clock,
    check_connections,
    check_eviction,
    check_memory,
    check_persistence,
    check_replay,
    check_replicas,
)
from sluicegate.doctor.versions import check_version
from sluicegate.errors import RedisAccessError, RedisMessageQueueError, RedisRefusedError, RedisUnavailableError
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place
from sluicegate.survey import FoundPlace, find_places, read_snapshots
from sluicegate.survey.snapshots import PlaceState

__all__ = ["examine"]

T = TypeVar("T")
_SERVER_RULES = (
    check_version,
    check_eviction,
    check_persistence,
    check_replay,
    check_replicas,
    check_memory,
    check_connections,
    check_clock,
)


def examine(
    gateway: RedisGateway,
    places: Iterable[Place | FoundPlace] | None = None,
    *,
    sample_seconds: float = 1.0,
    pause: Callable[[float], object] = time.sleep,
) -> list[Finding]:
    """Examine a Redis and the queues on it.

    It changes nothing, costs a few milliseconds per server and queue, and works with the rights that there are: what
    it may not look at is a finding, too. Nothing is retried. For its rates it reads totals twice.

    Args:
        gateway: connects as the user whose rights are examined.
        places: queues, streams and groups; None for all that SCAN finds.
        sample_seconds: how long rates are measured; 0 for not at all.
        pause: sleeps so long.

    Returns:
        The findings, the worst first, in the order of the checks otherwise. A server that cannot be reached is a
            finding as well.

    Raises:
        ConfigurationError: a name that nothing may have.
    """
    checks.not_negative("sample_seconds", sample_seconds)
    findings: list[Finding] = []
    try:
        findings.extend(_findings(gateway, places, sample_seconds, pause))
    except RedisAccessError as failed:
        findings.append(_failure(gateway, failed, "check user, password and rights; docs/access.md lists the rights"))
    except RedisRefusedError as failed:
        findings.append(_failure(gateway, failed, "see the other findings about this server"))
    except RedisUnavailableError as failed:
        findings.append(_failure(gateway, failed, "check that it runs there, and the host, the port and the network"))
    return sorted(findings, key=lambda finding: -finding.severity.rank)


def _failure(gateway: RedisGateway, failed: RedisMessageQueueError, advice: str) -> Finding:
    return error("reachable", gateway.server, str(failed), advice)


def _findings(
    gateway: RedisGateway,
    places: Iterable[Place | FoundPlace] | None,
    sample_seconds: float,
    pause: Callable[[float], object],
) -> Iterator[Finding]:
    servers = read_servers(gateway)
    yield from check_client(gateway)
    for facts in servers:
        yield from (finding for rule in _SERVER_RULES for finding in rule(facts))
    yield from check_clocks_together(servers)
    yield from check_cluster(servers)
    known, found = _places(gateway, places)
    yield from found
    if not known and not found:
        yield note("queues", gateway.server, "there is no queue yet")
    yield from check_rights(gateway, known, is_cluster=any(facts.is_cluster for facts in servers))
    spaces = sample_keys(gateway)
    state = _read(gateway, known, spaces, sample_seconds, pause)
    yield from state.findings
    yield from check_orphans(spaces, known, all_places=places is None and not found)
    for facts, space in zip(servers, spaces, strict=True):
        yield from check_forecast(facts, space, _on(state.rates, servers, space), state.examined)


def _places(
    gateway: RedisGateway, places: Iterable[Place | FoundPlace] | None
) -> tuple[list[Place], Sequence[Finding]]:
    """Return the places to examine, and a finding if they cannot be found."""
    if places is not None:
        return [place.place if isinstance(place, FoundPlace) else place for place in places], ()
    try:
        return [found.place for found in find_places(gateway)], ()
    except RedisAccessError as refused:
        return [], [could_not_look("queues", gateway.server, str(refused), "name the queues, or grant +scan")]


@dataclass(slots=True)
class _State:
    """What was read of the places."""

    findings: list[Finding] = field(default_factory=list)
    rates: dict[Place, Rates] = field(default_factory=dict)
    examined: dict[Place, Examination] = field(default_factory=dict)


def _read(
    gateway: RedisGateway,
    places: Sequence[Place],
    spaces: Sequence[Keyspace],
    sample_seconds: float,
    pause: Callable[[float], object],
) -> _State:
    """Read the places twice, examine them in between, and apply the rules about them."""
    state = _State()
    before, start = _snapshots(gateway, places), elapsed_clock()
    consumed = [place for place in places if not place.stream or place.group is not None]
    seen = {place: names for space in spaces for place, names in space.leases.items()}

    def look(some: Sequence[Place]) -> Mapping[Place, Examination | RedisMessageQueueError]:
        return run_together(
            gateway, {place: examine_operation(keys_of(place), seen.get(place, ())) for place in some}, retry=False
        )

    examinations = _each(look, consumed)
    if sample_seconds and any(isinstance(one, Snapshot) for one in before.values()):
        pause(max(0.0, sample_seconds - (elapsed_clock() - start)))
        after, seconds = _snapshots(gateway, places), elapsed_clock() - start
    else:
        after, seconds = before, 0.0
    for place in places:
        first, last, found = before[place], after[place], examinations.get(place)
        if isinstance(found, Examination):
            state.examined[place] = found
            state.findings += check_damage(str(place), found, in_stream=place.stream)
        if isinstance(last, RedisMessageQueueError):
            advice = "see the finding above about it, or docs/troubleshooting.md"
            state.findings.append(error("readable", str(place), f"it cannot be read: {last}", advice))
        elif isinstance(last, Snapshot) and isinstance(first, Snapshot):
            state.rates[place] = Rates.between(first, last, seconds)
            known = found if isinstance(found, Examination) else None
            state.findings += check_state(str(place), first, last, known)
    return state


def _snapshots(gateway: RedisGateway, places: Sequence[Place]) -> Mapping[Place, PlaceState]:
    return _each(lambda some: read_snapshots(gateway, some, retry=False), places)


def _each(
    read: Callable[[Sequence[Place]], Mapping[Place, T]], places: Sequence[Place]
) -> Mapping[Place, T | RedisMessageQueueError]:
    """Read all places together; if that fails because of one of them, one by one."""
    try:
        return read(places)
    except RedisUnavailableError:
        raise
    except RedisMessageQueueError:
        found: dict[Place, T | RedisMessageQueueError] = {}
        for place in places:
            try:
                found |= read([place])
            except RedisMessageQueueError as failed:
                found[place] = failed
        return found


def _on(rates: dict[Place, Rates], servers: Sequence[ServerFacts], space: Keyspace) -> dict[Place, Rates]:
    """Return the rates of the places on one server: of those whose keys were seen there."""
    if len(servers) == 1:
        return rates
    here = {*space.markers, *space.lasting, *space.leases}
    return {place: rate for place, rate in rates.items() if place in here}
