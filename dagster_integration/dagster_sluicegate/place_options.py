"""Which options a queue, a stream and a group have, out of the fields of one resource."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from dagster_sluicegate.names import Names
from dagster_sluicegate.urls import is_variable
from sluicegate.core.stream_ids import parse_start
from sluicegate.core.transitions.trim import TrimRules
from sluicegate.options import OPTIONS
from sluicegate.place import Place
from sluicegate.streams import GroupOptions, RedisStreamQueue

__all__ = ["STREAM_FIELDS", "check_stream_fields", "options_of", "unfit_fields"]

STREAM_FIELDS = ("start", "max_length", "max_age_seconds", "trim_unfinished")
"""Fields of the resource that a queue does not have."""


def options_of(place: Place) -> Collection[str]:
    """Return the names of the options of a place."""
    if not place.stream:
        return OPTIONS.keys()
    return _stream_options() if place.group is None else (*GroupOptions.__annotations__, "consumer", "start")


def unfit_fields(names: Names) -> Mapping[str, str]:
    """Return the fields that what a resource names does not have, each with what to do instead."""
    if names.queue_name is not None:
        return dict.fromkeys(STREAM_FIELDS, "is an option of a stream; leave it out, or give stream_name")
    if names.stream_name is None:
        return {}
    known = {*_stream_options(), *GroupOptions.__annotations__}
    unknown = [name for name in OPTIONS if name not in known]
    return dict.fromkeys(unknown, "is an option of a queue, which a stream does not have; leave it out")


def check_stream_fields(values: Mapping[str, Any]) -> None:
    """Refuse values of the fields of a stream that cannot work.

    Raises:
        ConfigurationError: names the option.
    """
    known = {name: value for name, value in values.items() if not is_variable(value)}
    if known.get("start") is not None:
        parse_start(known["start"])
    TrimRules(known.get("max_length"), known.get("max_age_seconds"), known.get("trim_unfinished", False))


@functools.cache
def _stream_options() -> Collection[str]:
    named = inspect.signature(RedisStreamQueue.__init__).parameters
    return frozenset(named) - {"self", "name", "client", "url", "gateway"}
