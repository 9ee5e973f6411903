"""Remembers which node of a cluster answers for a slot."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Node", "Routes"]

Node = tuple[str, int]


class Routes:
    """Keeps where slots are.

    A queue lives in one slot, so the map of the whole cluster is not needed. Any node answers with the place of a slot
    that it does not have, and when a node fails, the next one is asked.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._seen: dict[Node, None] = {}

    def get(self, slot: int) -> Node | None:
        """Return the node to ask for a slot, None as long as the client's own map is right."""
        return self._nodes.get(slot)

    def learn(self, slot: int, node: Node) -> None:
        """Remember that a node answers for a slot."""
        self._seen[node] = None
        self._nodes[slot] = node

    def suspect(self, slot: int, failed: Node, known: Iterable[Node]) -> None:
        """Ask another node than the failed one next time: the next of those that the client or other nodes named."""
        nodes = list(dict.fromkeys([*known, *self._seen]))
        if self._nodes.get(slot, failed) != failed or not nodes:
            return  # another thread has moved on already
        position = nodes.index(failed) + 1 if failed in nodes else 0
        self._nodes[slot] = nodes[position % len(nodes)]
