"""What is sent: orders of exactly 200 bytes of compact JSON, with deduplication keys as long as real ones."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["BATCH", "KEY_FIELD", "PAYLOAD_BYTES", "QUEUE", "Order", "key_bytes", "orders"]

QUEUE = "orders"
KEY_FIELD = "order_id"
PAYLOAD_BYTES = 200
BATCH = 1000

Order = dict[str, Any]


def orders(count: int, first: int = 0) -> list[Order]:
    """Different orders: text, an int, a float, a bool, a null and a list, filled up to the wanted size."""
    return [_order(number) for number in range(first, first + count)]


def key_bytes() -> int:
    """Length of one deduplication key."""
    return len(_order(0)[KEY_FIELD])


def _order(number: int) -> Order:
    order: Order = {
        KEY_FIELD: f"2013-{number % 12 + 1:02}-{number % 28 + 1:02}-EWR-{number:09}",
        "customer": "Ada Lovelace",
        "amount": number % 1000 + 0.25,
        "lines": [number % 7, number % 11, 3],
        "paid": True,
        "coupon": None,
        "note": "",
    }
    order["note"] = "x" * (PAYLOAD_BYTES - len(json.dumps(order, separators=(",", ":"))))
    return order
