"""Which node of a cluster to ask, as far as answers and failures have taught."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Node", "Routes"]

Node = tuple[str, int]


class Routes:
    """Where slots are.

    A queue lives in one slot, so instead of the map of the whole cluster we keep what nodes told us: any node answers
    with the place of a slot that is not its own. When a node fails, the next one is asked.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._seen: dict[Node, None] = {}

    def get(self, slot: int) -> Node | None:
        """Where to ask for a slot, None while nothing is known that the client does not know."""
        return self._nodes.get(slot)

    def learn(self, slot: int, node: Node) -> None:
        """A node said that a slot is there."""
        self._seen[node] = None
        self._nodes[slot] = node

    def suspect(self, slot: int, failed: Node, known: Iterable[Node]) -> None:
        """A node failed: ask the next one of those known to the client or named by others."""
        nodes = list(dict.fromkeys([*known, *self._seen]))
        if self._nodes.get(slot, failed) != failed or not nodes:
            return  # another thread has moved on already
        position = nodes.index(failed) + 1 if failed in nodes else 0
        self._nodes[slot] = nodes[position % len(nodes)]
