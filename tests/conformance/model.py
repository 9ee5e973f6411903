"""What a queue is, without Redis: the model that the state machine compares a real one with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

FREE_RELEASES = 3
VERBS_OF = {"delay": "nack"}  # a nack with a delay is a case of its own here
AGREES = {"ack": ("acked",), "discard": ("acked",), "bury": ("buried",)}


@dataclass(frozen=True)
class Rules:
    """How a queue is set up; `None` for what it does without."""

    until_acked: bool = False
    keyed: bool = True
    most: int | None = 3  # deliveries
    max_pending_length: int | None = None
    drops: bool = False
    max_dead_length: int | None = None
    completed: int | None = None
    failed: int | None = None
    on_error: str = "retry"


@dataclass
class Known:
    """A message as the model knows it."""

    sequence: int
    key: int | None
    deliveries: int = 0
    releases: int = 0


@dataclass
class Opening:
    """A lease that is open, or that the record of its end describes."""

    token: bytes
    slots: dict[int, str]
    size: int
    recorded: bool
    takeovers: int = 0
    expired: bool = False
    fates: dict[int, str] = field(default_factory=dict)  # slot -> acked, returned, buried or left

    def counts(self) -> tuple[int, int, int]:
        fates = list(self.fates.values())
        return fates.count("acked"), fates.count("returned"), fates.count("buried")


@dataclass
class Reported:
    """What a publish answers."""

    owners: list[str | None]
    refused: list[int]
    accepted: int = 0
    dropped: int = 0


class Model:
    """The states of all messages, the keys they hold, the leases, and the totals."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.known: dict[str, Known] = {}
        self.pending: list[str] = []
        self.returned: set[str] = set()
        self.delayed: dict[str, bool] = {}  # name -> whether it is due
        self.dead: dict[str, int] = {}  # name -> when it was buried
        self.gone: dict[str, set[str]] = {
            why: set() for why in ("acked", "discarded", "dropped", "dead_dropped", "purged", "cancelled")
        }
        self.keys: dict[int, str] = {}
        self.completed: list[str] = []  # the newest last
        self.failed: list[tuple[str, str]] = []
        self.leases: dict[str, Opening] = {}
        self.ends: dict[str, Opening] = {}
        self.paused = False
        self.now = 0
        self.buried = self.redriven = self.records_purged = 0

    # ------------------------------------------------------------------ what there is

    def in_order(self) -> list[str]:
        return sorted(self.returned, key=lambda name: self.known[name].sequence)

    def leased(self) -> list[str]:
        return [name for lease in self.leases.values() for name in lease.slots.values()]

    def waiting(self) -> int:
        return len(self.pending) + len(self.returned) + len(self.delayed)

    def excess_dead(self) -> int:
        most = self.rules.max_dead_length
        return max(0, len(self.dead) - most) if most is not None else 0

    # ------------------------------------------------------------------ publish

    def publish(self, names: list[str], keys: list[int], *, delay: bool, partial: bool) -> Reported | None:
        """Publish and return the outcomes; None if there is no room and nothing was stored."""
        rules, held = self.rules, dict(self.keys) if self.rules.keyed else {}
        room = len(names) if rules.max_pending_length is None else max(0, rules.max_pending_length - self.waiting())
        reported, fresh = Reported([None] * len(names), []), list[int]()
        for at, key in enumerate(keys):
            if key in held:
                reported.owners[at] = held[key]
            elif partial and len(fresh) >= room:
                reported.refused.append(at)
            else:
                fresh.append(at)
                if rules.keyed:
                    held[key] = names[at]
        if len(fresh) > room:
            kept = len(self.returned) + len(self.delayed)
            if not rules.drops or kept + len(fresh) > (rules.max_pending_length or 0):
                return None
            reported.dropped = len(fresh) - room
        for at in fresh:
            self.known[names[at]] = Known(len(self.known) + 1, keys[at] if rules.keyed else None)
            if delay:
                self.delayed[names[at]] = False
            else:
                self.pending.append(names[at])
        self.gone["dropped"].update(self.pending[: reported.dropped])
        del self.pending[: reported.dropped]
        self.keys, reported.accepted = held, len(fresh)
        return reported

    def free(self, name: str) -> None:
        key = self.known[name].key
        if key is not None and self.keys.get(key) == name:
            del self.keys[key]

    def end(self, name: str) -> None:
        """Record that a message is done or dead."""
        if self.rules.until_acked:
            self.free(name)

    # ------------------------------------------------------------------ claim

    def tidy(self) -> None:
        for name in [name for name, due in self.delayed.items() if due]:
            del self.delayed[name]
            if self.known[name].deliveries:
                self.returned.add(name)
            else:
                self.pending.append(name)
        for lease_id in [lease_id for lease_id, lease in self.leases.items() if lease.expired]:
            self.reap(lease_id)

    def reap(self, lease_id: str) -> None:
        lease = self.leases.pop(lease_id)
        for slot, name in lease.slots.items():
            self.come_back(name, lease, failed=True, named=False)
            lease.fates[slot] = "left"
        self.ends[lease_id] = lease

    def take(self, limit: int) -> list[str]:
        taken: list[str] = []
        most, room, untried, stopped = self.rules.most, limit, True, False
        for name in self.in_order():
            deliveries = self.known[name].deliveries
            if not taken:
                untried = deliveries == 0
            stopped = untried != (deliveries == 0)
            if deliveries:
                alone = most is not None and deliveries >= most - 1
                room = min(room, 1 if alone else max(1, limit // 4**deliveries))
            if stopped or len(taken) >= room:
                break
            taken.append(name)
        if untried and not stopped:
            taken += self.pending[: room - len(taken)]
        self.returned -= set(taken)
        self.pending = [name for name in self.pending if name not in taken]
        return taken

    # ------------------------------------------------------------------ settle

    def bury(self, name: str) -> None:
        self.dead[name] = self.now
        self.buried += 1
        self.end(name)

    def come_back(self, name: str, lease: Opening, *, failed: bool, named: bool, delay: bool = False) -> str:
        message, most = self.known[name], self.rules.most
        counted = failed or message.releases >= FREE_RELEASES
        message.deliveries += lease.takeovers + counted
        message.releases += not counted
        if most is not None and message.deliveries >= most:
            if (counted and lease.size == 1) or (failed and named):
                self.bury(name)
                return "buried"
            message.deliveries = most - 1
        if delay:
            self.delayed[name] = False
        else:
            self.returned.add(name)
        return "returned"

    def settle(self, lease_id: str, token: bytes, verbs: dict[int, tuple[str, bool]]) -> list[int]:
        """Returns the slots for which the verdict came too late; the verdicts are given in their order."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.token != token:
            end = self.ends.get(lease_id)
            if end is None or end.token != token:
                return list(verbs)
            return [slot for slot, (verb, _) in verbs.items() if not agrees(verb, end.fates[slot])]
        for slot, (verb, named) in verbs.items():
            lease.fates[slot] = self._verdict(lease.slots.pop(slot), lease, verb, named)
        if not lease.slots:
            del self.leases[lease_id]
            if lease.recorded or set(lease.fates.values()) != {"acked"}:
                self.ends[lease_id] = lease
        return []

    def _verdict(self, name: str, lease: Opening, verb: str, named: bool) -> str:
        if self.rules.failed is not None and verb not in ("ack", "release"):
            self.failed.append((VERBS_OF.get(verb, verb), name))
            self.failed = self.failed[-self.rules.failed :]
        match verb:
            case "ack" | "discard":
                self.gone["acked" if verb == "ack" else "discarded"].add(name)
                if verb == "ack" and self.rules.completed is not None:
                    self.completed = [*self.completed, name][-self.rules.completed :]
                self.end(name)
                return "acked"
            case "bury":
                self.known[name].deliveries += lease.takeovers + 1
                self.bury(name)
                return "buried"
            case "release":
                return self.come_back(name, lease, failed=False, named=named)
        return self.come_back(name, lease, failed=True, named=named, delay=verb == "delay")

    # ------------------------------------------------------------------ administration

    def redrive(self, letters: list[str], limit: int | None) -> tuple[int, int]:
        """Redrive, and return how many moved and how many are blocked; `letters` keep the dead letters' order."""
        went = blocked = 0
        while letters and went != limit:
            room = (
                len(letters)
                if self.rules.max_pending_length is None
                else max(0, self.rules.max_pending_length - self.waiting())
            )
            going: list[str] = []
            page = letters if limit is None else letters[: limit - went]
            full = False
            for name in page:
                if not self._may_go(name):
                    blocked += 1
                elif len(going) >= room:
                    full = True
                    break
                else:
                    going.append(name)
                    self._hold_again(name)
            self.pending += sorted(going, key=lambda name: self.known[name].sequence)
            for name in going:
                del self.dead[name]
                self.known[name].deliveries = self.known[name].releases = 0
            went += len(going)
            if full:
                break
            letters = letters[len(page) :]
        self.redriven += went
        return went, blocked

    def _may_go(self, name: str) -> bool:
        key = self.known[name].key
        return key is None or self.keys.get(key, name) == name

    def _hold_again(self, name: str) -> None:
        key = self.known[name].key
        if self.rules.until_acked and key is not None:
            self.keys[key] = name

    def remove(self, names: Iterable[str], why: str) -> None:
        """Messages that wait or are dead are deleted, and their keys freed."""
        for name in names:
            self.free(name)
            self.gone[why].add(name)
            self.returned.discard(name)
            self.delayed.pop(name, None)
            self.dead.pop(name, None)
        self.pending = [name for name in self.pending if name not in self.gone[why]]


def agrees(verb: str, fate: str) -> bool:
    return fate in AGREES.get(verb, ("returned", "buried"))
