"""A finding says what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Severity", "could_not_look", "error", "note", "ok", "warning", "worst"]


class Severity(StrEnum):
    """This is how much a finding matters.

    `error`: messages are lost, stuck or refused, or may be at any time. `warning`: that happens under load, or when
    something else fails. `note`: worth knowing, or it could not be looked at. `ok`: looked at, and in order.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Return its place in the order, 0 for `ok`."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of an examination.

    Attributes:
        severity: how much it matters.
        check: the rule that found it, such as `eviction`; the names are kept from release to release.
        where: the server, the queue or the client that it is about.
        what: how it is.
        advice: what to do about it; "" where nothing is to be done.
    """

    severity: Severity
    check: str
    where: str
    what: str
    advice: str = ""


def ok(check: str, where: str, what: str) -> Finding:
    """Return the finding that something is in order."""
    return Finding(Severity.OK, check, where, what)


def note(check: str, where: str, what: str, advice: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(Severity.NOTE, check, where, what, advice)


def warning(check: str, where: str, what: str, advice: str) -> Finding:
    """Return a finding that matters once something else happens."""
    return Finding(Severity.WARNING, check, where, what, advice)


def error(check: str, where: str, what: str, advice: str) -> Finding:
    """Return a finding that matters now."""
    return Finding(Severity.ERROR, check, where, what, advice)


def could_not_look(check: str, where: str, why: str, advice: str) -> Finding:
    """Return the finding that something could not be looked at."""
    return note(check, where, f"could not look: {why}", advice)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the severity of the worst finding, `ok` for none."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)
