"""The checks of a drain's options: every form of a drain refuses the same values with the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dagster_sluicegate.drains.parameters import StepProcess
from dagster_sluicegate.drains.step import QueueDrainOptions, SettleWhen
from dagster_sluicegate.identity import StepContext
from dagster_sluicegate.names import Names
from sluicegate import checks
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.errors import ConfigurationError

__all__ = ["DEFAULT_MAX_MESSAGES", "checked_options"]

DEFAULT_MAX_MESSAGES = 100_000
_MAX_MESSAGES = 1_000_000_000


def checked_options(
    label: str,
    name: str,
    process: Callable[..., Any],
    *,
    batch_size: int,
    max_messages: int | None,
    settle: SettleWhen,
    lease_seconds: float | None,
    combine: Callable[[list[Any]], Any] | None,
    names: Callable[[StepContext], Names] | None = None,
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    required_resource_keys: Iterable[str] = (),
    check_names: Iterable[str] = (),
) -> QueueDrainOptions:
    """Return the options of a drain; see `build_queue_drain_asset`.

    Raises:
        ConfigurationError: an option that cannot work; it names the definition, the option and what to do.
    """
    try:
        checks.one_of("settle", settle, ("after_yield", "per_batch"))
        checks.count("batch_size", batch_size, MAX_CLAIM_LIMIT)
        if max_messages is not None:
            checks.count("max_messages", max_messages, _MAX_MESSAGES)
        elif settle == "after_yield":
            raise ConfigurationError(
                "max_messages=None would hold a whole backlog in memory until the yield; give a number, or let process "
                "write each batch and settle='per_batch'"
            )
        if lease_seconds is not None:
            checks.positive("lease_seconds", lease_seconds)
        if combine is not None:
            checks.callback("combine", combine)
            if settle == "per_batch":
                raise ConfigurationError("combine has nothing to combine with settle='per_batch'; leave it out")
        named = Names(queue_name, stream_name, group)
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: {error}") from error
    return QueueDrainOptions(
        label=label,
        name=name,
        step=StepProcess.of(label, process, required_resource_keys),
        batch_size=batch_size,
        max_messages=max_messages,
        lease_seconds=lease_seconds,
        settle=settle,
        combine=combine,
        names=named if names is None else names,
        checks=tuple(check_names),
    )
