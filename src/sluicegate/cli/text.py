"""Words and numbers as people read them; nothing here can steer a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

__all__ = [
    "ago",
    "clock_time",
    "count",
    "counted",
    "duration",
    "one_line",
    "shown",
    "size",
    "sparkline",
    "without_secrets",
]

_BLOCKS = "▁▂▃▄▅▆▇█"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_IN_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"]*@")
_OPTION = re.compile(r"(?P<name>[?&][a-z_]*(?:password|passwd|pass|pwd|auth|secret|token)=)[^&\s'\"]*", re.IGNORECASE)


def shown(text: str) -> str:
    """Return text with its control characters and those that reverse the direction of writing made visible."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or (character == " ")
        else character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
        else character
        for character in text
    )


def one_line(text: str, width: int = 80) -> str:
    """Return text on one line of at most `width` characters."""
    line = shown(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def count(number: int | None) -> str:
    """Return a number with separators, `-` for none."""
    return "-" if number is None else f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and what is counted, such as `1 message` or `1,000 messages`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units, such as `3m 12s`; `-` for none."""
    if seconds is None:
        return "-"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < _MINUTE:
        return f"{sign}{seconds:.1f}s" if seconds < 10 else f"{sign}{seconds:.0f}s"
    whole = round(seconds)
    for unit, name, smaller, below in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s")):
        if whole >= unit:
            return f"{sign}{whole // unit}{name} {whole % unit // smaller}{below}"
    return f"{sign}{whole}s"


def ago(then: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago something was."""
    if then is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 1 else "now"


def clock_time(then: datetime | None, now: datetime | None = None) -> str:
    """Return a time in the local zone, with its date unless it is today."""
    if then is None:
        return "-"
    local, today = then.astimezone(), (now or datetime.now(UTC)).astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def size(number: float) -> str:
    """Return a number of bytes, such as `12.3 kB`."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} TB"


def sparkline(values: Sequence[float], width: int = 20, top: float | None = None) -> str:
    """Return the last `width` values as a line of blocks, the highest of which stands for `top`."""
    kept = [max(0.0, value) for value in values[-width:]]
    most = max(kept, default=0.0) if top is None else top
    if not most:
        return _BLOCKS[0] * len(kept)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(steps, round(value / most * steps))] for value in kept)


def without_secrets(text: str) -> str:
    """Return text without the credentials of URLs in it, which an argument that is quoted may hold."""
    hidden = _IN_URL.sub(lambda found: f"{found['scheme']}***@", text)
    return _OPTION.sub(lambda found: f"{found['name']}***", hidden)
