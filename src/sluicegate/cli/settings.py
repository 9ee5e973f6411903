"""The settings of `sluicegate`: where Redis is and which places there are, from options, environment and a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate

__all__ = ["Settings", "find_config"]

_NO_URL = (
    'no Redis is named; give --url redis://host:6379/0, set SLUICEGATE_URL, or write url = "…" into sluicegate.toml'
)
_GATE_FIELDS = ("min_ready", "max_age_seconds", "min_dead")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the commands know before they ask Redis.

    Attributes:
        path: the file that was read; None without one.
        queues: names of queues, which commands without a place show.
        streams: names of streams.
        groups: names of groups by stream.
        jobs: names of queues of jobs.
        gates: gates by the name of their queue.
        options: options of queues, streams and groups by their names; that of a group is `stream/group`.
        health: limits for health checks, as the file has them.
        web: settings of the web page, as the file has them.
        metrics: settings of the exporter, as the file has them.
    """

    path: Path | None = None
    queues: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()
    gates: Mapping[str, Gate] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)
    web: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    _url: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Return the URL of the Redis.

        Raises:
            ConfigurationError: none is given.
        """
        if self._url is None:
            raise ConfigurationError(_NO_URL)
        return self._url

    @property
    def has_url(self) -> bool:
        """Return whether a Redis is named."""
        return self._url is not None

    @classmethod
    def load(
        cls, url: str | None = None, config: Path | None = None, environ: Mapping[str, str] = os.environ
    ) -> Settings:
        """Read the settings; the option comes before the environment, and that before the file.

        Args:
            url: of the option `--url`.
            config: of the option `--config`.
            environ: the environment.

        Raises:
            ConfigurationError: the file cannot be read, or an entry of it cannot be used.
        """
        path = find_config(config, environ)
        values = {} if path is None else _read(path)
        given = url or environ.get("SLUICEGATE_URL") or values.get("url")
        if path is None:
            return cls(_url=given)
        return cls(
            path=path,
            queues=_names(path, values, "queues"),
            streams=_names(path, values, "streams"),
            groups={
                stream: _texts(path, f"groups.{stream}", names)
                for stream, names in _table(path, values, "groups").items()
            },
            jobs=_names(path, values, "jobs"),
            gates={name: _gate(path, name, rules) for name, rules in _table(path, values, "gates").items()},
            options=_options(path, _table(path, values, "options")),
            health=_table(path, values, "health"),
            web=_table(path, values, "web"),
            metrics=_table(path, values, "metrics"),
            _url=given,
        )


def find_config(config: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file with the settings, or None: `--config`, `SLUICEGATE_CONFIG`, `./sluicegate.toml`, the user's.

    Raises:
        ConfigurationError: a file that was named does not exist.
    """
    named = config or (Path(environ["SLUICEGATE_CONFIG"]) if environ.get("SLUICEGATE_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise ConfigurationError(f"there is no configuration file {str(named)!r}")
        return named
    home = environ.get("XDG_CONFIG_HOME") or (Path(environ["HOME"], ".config") if environ.get("HOME") else None)
    usual = [Path("sluicegate.toml"), *([Path(home, "sluicegate", "config.toml")] if home else [])]
    return next((path for path in usual if path.is_file()), None)


_KNOWN = {
    "url": str,
    "queues": list,
    "streams": list,
    "jobs": list,
    "groups": dict,
    "gates": dict,
    "options": dict,
    "health": dict,
    "web": dict,
    "metrics": dict,
}
_WORDS = {str: "a text", list: "a list of texts", dict: "a table"}


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    for name, value in values.items():
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KNOWN)}"
            raise ConfigurationError(f"{path} has an unknown entry {name!r}; {advice}")
        if not isinstance(value, _KNOWN[name]):
            raise ConfigurationError(f"{path}: {name} must be {_WORDS[_KNOWN[name]]}, not {type(value).__name__}")
    return values


def _table(path: Path, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return dict(values.get(name, {}))


def _names(path: Path, values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return _texts(path, name, values.get(name, []))


def _texts(path: Path, name: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(one, str) and one.strip() for one in values):
        raise ConfigurationError(f"{path}: {name} must be a list of texts")
    return tuple(values)


def _gate(path: Path, name: str, rules: object) -> Gate:
    if not isinstance(rules, dict) or not set(rules) <= set(_GATE_FIELDS):
        raise ConfigurationError(f"{path}: gates.{name} is a table with {', '.join(_GATE_FIELDS)}, and nothing else")
    try:
        return Gate(**rules)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: gates.{name}: {error}") from None


def _options(path: Path, tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for name, options in tables.items():
        if not isinstance(options, dict):
            raise ConfigurationError(f"{path}: options.{name} must be a table of options, not {type(options).__name__}")
    return dict(tables)
