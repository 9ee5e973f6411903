"""What a settle sends: verdicts brought together by what they say, in calls that hold Redis for milliseconds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sluicegate.core.ranges import format_ranges, parse_ranges
from sluicegate.core.replies import Settled
from sluicegate.core.values import QueueRules, SettleRequest, VerdictGroup

__all__ = ["MAX_BYTES", "MAX_SLOTS", "joined", "merged", "steps"]

MAX_SLOTS = 1000
"""Messages that one call takes back, buries or discards."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of these messages and of their errors, a single larger one aside."""


def merged(groups: Sequence[VerdictGroup]) -> list[VerdictGroup]:
    """Verdicts that say the same as one group each, in the order of their first slot given; a slot goes by the first
    verdict that names it.
    """
    if len(groups) < 2:
        return list(groups)
    slots: dict[VerdictGroup, list[int]] = {}
    seen: set[int] = set()
    for group in groups:
        fresh = [slot for slot in parse_ranges(group.slots) if slot not in seen]
        if fresh:
            seen.update(fresh)
            slots.setdefault(replace(group, slots=""), []).extend(fresh)
    return [replace(group, slots=format_ranges(sorted(members))) for group, members in slots.items()]


def steps(rules: QueueRules, request: SettleRequest, size_of: Callable[[int], int]) -> list[SettleRequest]:
    """The calls that a settle takes: one, unless it takes back, buries or discards more than a call should.

    All acks go together in the last call. Whoever writes one output per lease writes it from what is acked, and until
    then a lease that is taken over still holds all of that: a crash between two calls leaves no output that lacks an
    acked message.

    Args:
        terms: of the queue.
        request: what shall be settled.
        size_of: the bytes of the message in a slot.
    """
    acks = [group for group in request.groups if group.verb == "ack"]
    planned, slots, size = [list[VerdictGroup]()], 0, 0
    for group in request.groups:
        part: list[int] = []
        for slot in parse_ranges(group.slots) if group.verb != "ack" else ():
            weight = size_of(slot) + len(group.why)
            if slots and (slots >= MAX_SLOTS or size + weight > MAX_BYTES):
                planned[-1] += _of(group, part)
                planned.append([])
                part, slots, size = [], 0, 0
            part.append(slot)
            slots, size = slots + 1, size + weight
        planned[-1] += _of(group, part)
    # Acks that free a marker or are recorded read their messages, too.
    noted = bool(request.bound) or rules.completed_cap is not None
    if noted and slots and slots + sum(len(parse_ranges(group.slots)) for group in acks) > MAX_SLOTS:
        planned.append(acks)
    elif len(planned) == 1:
        return [request]  # in the order in which the verdicts were given
    else:
        planned[-1] += acks
    return [replace(request, groups=tuple(groups)) for groups in planned if groups]


def joined(answers: Sequence[Settled]) -> Settled:
    """The answers to all calls of one settle as one."""
    if len(answers) == 1:
        return answers[0]
    return Settled(
        lost=[slot for answer in answers for slot in answer.lost],
        held=answers[-1].held,
        buried=list(dict.fromkeys(slot for answer in answers for slot in answer.buried)),
        dropped=sum(answer.dropped for answer in answers),
        aside=sum(answer.aside for answer in answers),
    )


def _of(group: VerdictGroup, slots: Sequence[int]) -> list[VerdictGroup]:
    return [replace(group, slots=format_ranges(slots))] if slots else []
