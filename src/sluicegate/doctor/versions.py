"""The rules about the version of a server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluicegate.doctor.finding import Finding, could_not_look, error, note, ok, warning
from sluicegate.doctor.server_facts import ServerFacts

__all__ = ["check_version"]

Release = tuple[int, ...]
_OLDEST: Mapping[str, Release] = {"redis": (6, 2), "valkey": (7, 2)}
_OTHERS = {"dragonfly_version": "Dragonfly", "garnet_version": "Garnet", "kvrocks_version": "Kvrocks"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A known fault of server versions.

    Attributes:
        name: what it is called.
        effect: what it does.
        fixed: the first release of each product and series that does not have it. Series between these have no fix;
            later ones never had the fault.
    """

    name: str
    effect: str
    fixed: Mapping[str, tuple[Release, ...]]

    def concerns(self, product: str, release: Release) -> bool:
        """Return whether a release has this fault."""
        fixes = self.fixed.get(product, ())
        same = [fix for fix in fixes if fix[:2] == release[:2]]
        return release < same[0] if same else bool(fixes) and release < fixes[-1]


_FAULTS = (
    Fault(
        "CVE-2025-49844",
        "whoever may run scripts, as every user of a queue may, can run any program on its host",
        {
            "redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
            "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
        },
    ),
)


def check_version(facts: ServerFacts) -> Iterator[Finding]:
    """Yield whether the library knows this server, and what is known to be wrong with it."""
    product, release = _identity(facts)
    if release is None:
        advice = "grant this user +info, or ask whoever runs the server; Redis must be 6.2 or newer"
        yield could_not_look("version", facts.server, "the server does not show its version", advice)
        return
    text = f"{product} {'.'.join(map(str, release))}"
    for field, name in _OTHERS.items():
        if field in facts.info:
            yield warning(
                "version",
                facts.server,
                f"{name}, which answers as {text}, is not a server that this library is tested with",
                "use Redis 6.2 or newer, or Valkey",
            )
            return
    if release < _OLDEST[product.lower()]:
        oldest = ".".join(map(str, _OLDEST[product.lower()]))
        yield error(
            "version",
            facts.server,
            f"{text} is too old: scripts use commands that it does not know",
            f"upgrade to {product} {oldest} or newer",
        )
        return
    lacks = "" if release >= (7, 2) else "; it has no WAITAOF, so durability='fsync' is refused"
    yield ok("version", facts.server, f"{text}{lacks}")
    if faults := [fault for fault in _FAULTS if fault.concerns(product.lower(), release)]:
        yield note(
            "version",
            facts.server,
            f"{text} as released has {' and '.join(fault.name for fault in faults)}: {faults[0].effect}",
            "upgrade to the last release of its series, or of a newer one; a distribution's package may have the fix "
            "under the old number",
        )


def _identity(facts: ServerFacts) -> tuple[str, Release | None]:
    """Return product and release; Valkey shows a Redis version beside its own."""
    product = "Valkey" if "valkey_version" in facts.info else "Redis"
    text = facts.info.get("valkey_version") or facts.info.get("redis_version", "")
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return product, tuple(int(part or 0) for part in match.groups()) if match else None
