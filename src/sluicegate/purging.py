"""What a purge of several states empties, and how much is in them, for adapters that show it first."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.consumer import QueueConsumer
from sluicegate.core.transitions.peek import peek_operation
from sluicegate.core.transitions.purge import PURGEABLE
from sluicegate.errors import ConfigurationError

__all__ = ["count_states", "states_of"]

_HISTORIES = ("completed", "failed")


def states_of(state: str | Sequence[str] | None, *, everything: bool) -> tuple[str, ...]:
    """Return the states that a purge empties.

    Args:
        state: one or several.
        everything: True instead of a state: all.

    Raises:
        ConfigurationError: both or neither is given, or a state cannot be purged.
    """
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


def count_states(queue: QueueConsumer, states: Sequence[str]) -> dict[str, int]:
    """Return how many messages or records are in each state."""
    depth = queue.depth()
    return {state: _records(queue, state) if state in _HISTORIES else getattr(depth, state) for state in states}


def _records(queue: QueueConsumer, state: str) -> int:
    """Count the records of a history, whose length no script reports, by looking at single ones."""

    def is_there(at: int) -> bool:
        return bool(queue.session.runner.run(peek_operation(queue.session.keys, state, 1, offset=at)))

    end = 1
    while is_there(end - 1):
        end *= 2
    there, end = end // 2, end - 1  # so many are there; not one more than `end`
    while there < end:
        middle = (there + end + 1) // 2
        there, end = (middle, end) if is_there(middle - 1) else (there, middle - 1)
    return there
