"""Read the section ``[sluicegate]`` of Airflow's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from airflow_provider_sluicegate.compat import conf

if TYPE_CHECKING:
    from sluicegate.gates import Gate
    from sluicegate.place import Place

__all__ = ["PREFIX", "SECTION", "PageSettings", "base_path", "is_enabled", "page_path", "read_settings"]

PREFIX = "/sluicegate"
SECTION = "sluicegate"
_DEFAULT_CONNECTION = "sluicegate_default"


@dataclass(frozen=True)
class PageSettings:
    """
    How the page is shown.

    :param connections: ids of the connections that have a page.
    :param is_read_only: whether every change there is refused.
    :param masks: what of payloads and headers is not shown.
    :param gates: lines in the charts, by the name of a queue or by ``stream/group``.
    """

    connections: tuple[str, ...]
    is_read_only: bool
    masks: tuple[str, ...]
    gates: Mapping[str, Gate | Mapping[str, Gate]]


def is_enabled() -> bool:
    """Return whether there is a page at all."""
    return bool(conf.getboolean(SECTION, "ui_enabled", fallback=True))


def base_path() -> str:
    """Return the path under which a proxy shows Airflow; "" for none."""
    return urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")


def read_settings() -> PageSettings:
    """
    Read how the page is shown.

    :raises ConfigurationError: an option that cannot work.
    """
    return PageSettings(
        connections=connections(),
        is_read_only=bool(conf.getboolean(SECTION, "ui_read_only", fallback=False)),
        masks=_listed("ui_masks", ""),
        gates=_gates(str(conf.get(SECTION, "ui_gates", fallback="") or "")),
    )


def connections() -> tuple[str, ...]:
    """Return the ids of the connections that have a page."""
    return _listed("ui_connections", _DEFAULT_CONNECTION)


def page_path(conn_id: str, place: Place | None = None, *, is_jobs: bool = False) -> str:
    """Return the path of a connection's page below the prefix, or of one place on it."""
    path = f"/connections/{quote(conn_id, safe='')}/"
    if place is None:
        return path
    names = [("stream" if place.stream else "jobs" if is_jobs else "queue", place.name)]
    if place.group is not None:
        names.append(("group", place.group))
    return f"{path}#{urlencode(names)}"


def _listed(option: str, default: str) -> tuple[str, ...]:
    """Return the parts of an option that holds several, separated by commas."""
    given = conf.get(SECTION, option, fallback=default)
    return tuple(part.strip() for part in str(given or "").split(",") if part.strip())


def _gates(text: str) -> Mapping[str, Gate | Mapping[str, Gate]]:
    from sluicegate.errors import ConfigurationError

    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, dict) for value in given.values()):
        raise ConfigurationError(
            f'[{SECTION}] ui_gates must be a JSON object such as {{"orders": {{"min_ready": 1000}}}}'
        )
    return {name: _gate(name, value) for name, value in given.items()}


def _gate(name: str, value: Mapping[str, Any]) -> Gate | Mapping[str, Gate]:
    """Return one gate, or several by their labels."""
    from sluicegate.errors import ConfigurationError
    from sluicegate.gates import Gate

    several = bool(value) and all(isinstance(inner, dict) for inner in value.values())
    try:
        return {label: Gate(**inner) for label, inner in value.items()} if several else Gate(**value)
    except TypeError:
        raise ConfigurationError(
            f"[{SECTION}] ui_gates has an option for {name!r} that no gate has; a gate has min_ready, max_age_seconds "
            "and min_dead"
        ) from None
