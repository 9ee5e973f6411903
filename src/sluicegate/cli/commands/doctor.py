"""Examines a Redis and the queues on it, and says what to do about each finding."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sluicegate.cli.context import Cli
from sluicegate.cli.exits import ExitCode
from sluicegate.cli.places import Targets, grouped

if TYPE_CHECKING:
    from sluicegate.doctor import Finding, Severity

__all__ = ["doctor"]

_STYLES = {"error": "red bold", "warning": "yellow bold", "note": "cyan", "ok": "green"}
_INDENT = " " * 8
_WIDTH = 110


def doctor(
    cli: Cli,
    targets: Targets,
    everything: Annotated[bool, typer.Option("--all", help="Show what is in order, too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="How long rates are measured for the forecast; 0: not at all.")
    ] = 1.0,
) -> int:
    """Examine a Redis and the queues on it, and say what to do about each finding.

    It reads only. Without PLACE it examines every queue, stream and group that it finds. The exit code is 1 if there
    is an error, and 3 if the server cannot be reached.
    """
    from sluicegate.doctor import Severity, examine

    findings: list[Finding] = []
    if targets:
        for gateway, some in grouped(targets):
            findings += examine(gateway, [target.place for target in some], sample_seconds=seconds)
    else:
        findings += examine(cli.gateway(), sample_seconds=seconds)
    findings.sort(key=lambda finding: -finding.severity.rank)
    _print(cli, findings, everything=everything)
    failing = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    if any(finding.check == "reachable" for finding in findings):
        return ExitCode.UNREACHABLE
    return ExitCode.FINDING if any(finding.severity in failing for finding in findings) else ExitCode.DONE


def _print(cli: Cli, findings: Sequence[Finding], *, everything: bool) -> None:
    if cli.output.as_json:
        for finding in findings:
            cli.output.record(finding)
        return
    for finding in findings:
        if everything or finding.severity != "ok":
            _print_one(cli, finding)
    cli.output.line(_summary([finding.severity for finding in findings]), "bold")


def _print_one(cli: Cli, finding: Finding) -> None:
    output = cli.output
    output.line(f"{finding.severity:7} {finding.where}", _STYLES[finding.severity])
    for text, style in ((finding.what, ""), (f"→ {finding.advice}" if finding.advice else "", "dim")):
        for line in _wrapped(text):
            output.line(line, style)


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text below its heading: as wide as a terminal, or one line in a file or a pipe."""
    width = min(shutil.get_terminal_size().columns, _WIDTH) - len(_INDENT) if sys.stdout.isatty() else max(1, len(text))
    wrapped = textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False)
    return [f"{_INDENT}{line}" for line in wrapped]


def _summary(severities: Sequence[Severity]) -> str:
    counts = {name: sum(1 for one in severities if one == name) for name in ("error", "warning", "note", "ok")}
    parts = [f"{number} {name}{'s' if number != 1 and name != 'ok' else ''}" for name, number in counts.items()]
    return ", ".join(part for part in parts if not part.startswith("0 "))
