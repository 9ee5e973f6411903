"""Delete what queues hold in chosen states, or count it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
    from sluicegate import RedisMessageQueue

__all__ = ["count_states", "states_of"]

_HISTORIES = ("completed", "failed")


def states_of(state: str | Sequence[str] | None, *, everything: bool) -> tuple[str, ...]:
    """
    Return the states that a purge empties.

    :param state: one or several.
    :param everything: True instead of a state: all.
    :raises ConfigurationError: both or neither is given, or a state cannot be purged.
    """
    from sluicegate.core.transitions.purge import PURGEABLE
    from sluicegate.errors import ConfigurationError

    if everything == (state is not None):
        raise ConfigurationError(
            f"give either state, one or more of {', '.join(PURGEABLE)}, or everything=True; nothing was deleted"
        )
    if state is None:
        return PURGEABLE
    states = (state,) if isinstance(state, str) else tuple(state)
    for name in states:
        if name not in PURGEABLE:
            raise ConfigurationError(
                f"state must be one or more of {', '.join(PURGEABLE)}, not {name!r}; nothing was deleted"
            )
    return tuple(dict.fromkeys(states))


def count_states(hook: RedisQueueHook, queue: RedisMessageQueue, states: Sequence[str]) -> dict[str, int]:
    """Return how many messages or records are in each state."""
    depth, client = queue.depth(), hook.get_conn()
    return {
        state: int(client.llen(getattr(queue.key, state))) if state in _HISTORIES else getattr(depth, state)
        for state in states
    }
